"""Impute missing tiers and llms of a landed trace, and describe the trace."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from fleetcast.assets.advice.imported_trace import DEFAULT_LLM, ImportedTrace
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.model_rows import names_by_model
from fleetcast.models.world.toml_dataclasses import parse_toml

REQUESTS_BY_LLM_QUERY = """
select llm, source_llm, count(*)::bigint as requests from requests where trace = $trace group by all
order by requests desc, llm, source_llm
"""


def impute_tiers_and_llms(
    lake: Lake,
    trace: str,
    source: str,
    file_format: str,
    left_out: Mapping[str, int],
    catalogue: Catalogue,
    as_llm: str | None,
    mapped: frozenset[str],
) -> ImportedTrace:
    """Impute tiers and llms of requests, and return the trace; requests without a profile are deleted."""
    known, rows = catalogue.llms, lake.sql(REQUESTS_BY_LLM_QUERY, trace=trace).to_pylist()
    llm_names = names_by_model(known) | _mapped_llm_names(lake)
    by_name = Counter[str]()
    for row in rows:
        if row["source_llm"] is not None:
            by_name[row["source_llm"]] += row["requests"]
    unprofiled = {
        name: count
        for name, count in by_name.items()
        if "llm" not in mapped and name not in known and llm_names.get(name) not in known
    }
    # Canonical and mapped requests use the catalogue's names.
    if not by_name and "llm" in mapped:
        unprofiled = {row["llm"]: row["requests"] for row in rows if row["llm"] not in known}
    elif not by_name and as_llm:  # the source names no llm: landing distributed the catalogue's
        unprofiled = {row["llm"]: row["requests"] for row in rows if row["llm"] != as_llm}
    substitute = as_llm or (DEFAULT_LLM if not by_name and "llm" not in mapped else None)
    distributed_tiers = int(lake.sql("reads/advice_trace.sql", trace=trace)["tiers_from_shares"][0].as_py())
    if unprofiled or (distributed_tiers and "tier" not in mapped):
        strictest = None if "tier" in mapped else catalogue.strictest
        _rewrite_days(lake, trace, catalogue, unprofiled, as_llm, strictest)
    gaps = lake.sql("marts/silences.sql", trace=trace)  # a gap in the data is not zero demand
    lake.write("silences", gaps, trace=trace)
    facts = lake.sql("reads/advice_trace.sql", trace=trace).to_pylist()[0]
    missing_keys = {"llm"} if not by_name and "llm" not in mapped else set()
    missing_keys |= {"region"} if len(facts["regions"]) == 1 and "region" not in mapped else set()
    missing_keys |= {"tier"} if distributed_tiers and "tier" not in mapped else set()
    llms = [
        row["llm"] for row in lake.sql(REQUESTS_BY_LLM_QUERY, trace=trace).to_pylist() if row["llm"] in known
    ]
    if not as_llm and sum(unprofiled.values()) == sum(row["requests"] for row in rows):
        llms = []  # all llms are unprofiled and none is assumed for them
    return ImportedTrace(
        lake, trace, source, file_format, left_out, facts["requests"], facts["first_at"], facts["last_at"],
        facts["input_tokens"], facts["output_tokens"], tuple(dict.fromkeys(llms)), by_name,
        {} if as_llm else unprofiled, substitute, tuple(facts["regions"]), tuple(facts["tiers"]),
        facts["app"] if facts["apps"] == 1 else None, frozenset(missing_keys),
        cached_share=facts["cached_share"], has_prompt_hashes=facts["has_prompt_hashes"],
    )  # fmt: skip


def _mapped_llm_names(lake: Lake) -> dict[str, str]:
    """Return the llm names of the mapping file next to the landed file: catalogue name by source name."""
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
    """Rewrite the days: distributed tiers become the strictest, unprofiled llms the one assumed for them.

    If none is assumed and other llms have a profile, the requests of unprofiled llms are deleted.
    """
    requests_by_llm = lake.sql(REQUESTS_BY_LLM_QUERY, trace=trace).to_pylist()
    is_all_unprofiled = all((row["source_llm"] or row["llm"]) in unprofiled for row in requests_by_llm)
    for day in lake.days("requests", trace):
        table = lake.sql(
            "reads/advice_settled_requests.sql",
            trace=trace,
            day=day,
            strange=list(unprofiled),
            as_llm=as_llm,
            tier=strictest,
            deadline_s=None if strictest is None else catalogue.tiers[strictest].deadline_s,
            keeps=as_llm is not None or is_all_unprofiled,
        )
        for path in lake.files("requests", trace=trace, day=day):
            lake.remove(path)
        if table.num_rows:
            lake.write("requests", table, trace=trace, day=day)
