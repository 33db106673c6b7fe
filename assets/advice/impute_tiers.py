"""What the requests of a landed trace are for: tiers that were dealt and llms without a profile settled."""

from collections.abc import Mapping
from pathlib import Path

from fleetcast.assets.advice.imported_trace import DEFAULT_LLM, ImportedTrace, profiled_llms
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.toml_dataclasses import parse_toml

REQUESTS_BY_LLM_QUERY = """
select llm, source_llm, count(*)::bigint as requests from requests where trace = $trace group by all
order by requests desc, llm, source_llm
"""


def impute_tiers_and_llms(
    lake: Lake,
    trace: str,
    source: str,
    form: str,
    left_out: Mapping[str, int],
    catalogue: Catalogue,
    as_llm: str | None,
    mapped: frozenset[str],
) -> ImportedTrace:
    """Settle what requests are for, and say what the trace is; requests of no profile leave the lake."""
    known, rows = set(profiled_llms(catalogue)), lake.sql(REQUESTS_BY_LLM_QUERY, trace=trace).to_pylist()
    mapping = _mapped_llm_names(lake)
    named: dict[str, int] = {}
    for row in rows:
        if row["source_llm"] is not None:
            named[row["source_llm"]] = named.get(row["source_llm"], 0) + row["requests"]
    is_known = {
        name: name in known or mapping.get(name) in known or ("llm" in mapped and name not in catalogue.llms)
        for name in named
    }
    unprofiled = {name: count for name, count in named.items() if not is_known[name]}
    if not named and "llm" in mapped:  # canonical requests and mapped ones name ours
        unprofiled = {row["llm"]: row["requests"] for row in rows if row["llm"] not in known}
    elif not named and as_llm:  # dealt llms that nobody named
        unprofiled = {row["llm"]: row["requests"] for row in rows if row["llm"] != as_llm}
    stands = as_llm or (DEFAULT_LLM if not named and "llm" not in mapped else None)
    dealt = int(lake.sql("reads/advice_trace.sql", trace=trace)["tiers_from_shares"][0].as_py())
    strictest = catalogue.strictest_tier(catalogue.tiers)
    if unprofiled or (dealt and "tier" not in mapped):
        _rewrite_days(lake, trace, catalogue, unprofiled, as_llm, None if "tier" in mapped else strictest)
    silences = lake.sql("marts/silences.sql", trace=trace)  # what nobody collected is not zero to a forecast
    lake.write("silences", silences, trace=trace)
    what = lake.sql("reads/advice_trace.sql", trace=trace).to_pylist()[0]
    lacks = {"llm"} if not named and "llm" not in mapped else set()
    lacks |= {"region"} if len(what["regions"]) == 1 and "region" not in mapped else set()
    lacks |= {"tier"} if dealt and "tier" not in mapped else set()
    llms = [
        row["llm"] for row in lake.sql(REQUESTS_BY_LLM_QUERY, trace=trace).to_pylist() if row["llm"] in known
    ]
    if not as_llm and sum(unprofiled.values()) == sum(row["requests"] for row in rows):
        llms = []  # what they were landed as stands for nothing
    return ImportedTrace(
        lake, trace, source, form, left_out, what["requests"], what["first_at"], what["last_at"],
        what["input_tokens"], what["output_tokens"], tuple(dict.fromkeys(llms)), named,
        {} if as_llm else unprofiled, stands, tuple(what["regions"]), tuple(what["tiers"]),
        what["app"] if what["apps"] == 1 else None, frozenset(lacks),
    )  # fmt: skip


def _mapped_llm_names(lake: Lake) -> Mapping[str, str]:
    """What a mapping file beside the landed file calls an llm of ours."""
    for path in Path(str(lake.root.parent)).glob("landing/*.toml"):
        return dict(parse_toml(path.read_text(encoding="utf-8"), path).get("llm_names", {}))
    return {}


def _rewrite_days(
    lake: Lake,
    trace: str,
    catalogue: Catalogue,
    unprofiled: Mapping[str, int],
    as_llm: str | None,
    strictest: str | None,
) -> None:
    """Write the days anew: dealt tiers become the strictest, and llms without a profile what stands for them.

    Where nothing stands for them, and others have a profile, their requests leave the lake.
    """
    some = lake.sql(REQUESTS_BY_LLM_QUERY, trace=trace).to_pylist()
    all_unknown = all((row["source_llm"] or row["llm"]) in unprofiled for row in some)
    for day in lake.days("requests", trace):
        table = lake.sql(
            "reads/advice_settled_requests.sql",
            trace=trace,
            day=day,
            strange=list(unprofiled),
            as_llm=as_llm,
            tier=strictest,
            deadline_s=None if strictest is None else catalogue.tiers[strictest].deadline_s,
            keeps=as_llm is not None or all_unknown,
        )
        for path in lake.files("requests", trace=trace, day=day):
            path.unlink()
        if table.num_rows:
            lake.write("requests", table, trace=trace, day=day)
