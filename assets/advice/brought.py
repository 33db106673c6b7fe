"""A trace of one's own, brought into a lake of its own: what it says, and what it does not.

The lake lies beside the page (data/figures/advice/NAME/lake), so that the commands on the page find it.
Where a file names no region all is one place; no urgency: all is of the strictest tier; no llm: all is for
the one that is planned as if. What it names itself stays. A mapping file beside the trace goes before.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from assets.lake.settings import Progress, midnight
from assets.lake.store import Place
from assets.lake.warehouse import Lake, LakeError
from assets.traces.landing import land_one
from assets.traces.mapping import mapping_file
from models.world.catalogue import Catalogue
from models.world.reading import ConfigError, parse_toml, require_known

AS_IF = "llama3.1-8b"  # where a trace names no llm and nobody says which
MOST_DAYS = 15  # that are read: two weeks of history, and the day that is replayed
TABLES = ("ingests", "tiers", "tier_verdicts", "metric_findings")  # of a trace that has landed before
OF_LLMS = """
select llm, source_llm, count(*)::bigint as requests from requests where trace = $trace group by all
order by requests desc, llm, source_llm
"""
WHAT = """
select
    count(*)::bigint as requests, min(arrived_at) as first_at, max(arrived_at) as last_at,
    sum(input_tokens)::double as input_tokens, sum(output_tokens)::double as output_tokens,
    count(distinct app)::bigint as apps, any_value(app) as app,
    list(distinct region order by region) as regions, list(distinct tier order by tier) as tiers,
    count_if(tier_source = 'dealt')::bigint as dealt
from requests
where trace = $trace
"""


class Brought(NamedTuple):
    """A trace in a lake, and what it says of itself."""

    lake: Lake
    trace: str
    source: str  # the file, or the trace that it is a copy of
    format: str
    left_out: Mapping[str, int]  # rows that are no requests, by reason
    requests: int
    first_at: datetime
    last_at: datetime
    input_tokens: float
    output_tokens: float
    llms: tuple[str, ...]  # that are planned for
    named: Mapping[str, int]  # requests by what the source calls the llm; empty where it names none
    unprofiled: Mapping[str, int]  # of these, the ones that nobody profiled and that nothing stands for
    as_llm: str | None  # what stands for those that have no profile, or no name
    regions: tuple[str, ...]
    tiers: tuple[str, ...]
    app: str | None  # the only one; None where there are several
    lacks: frozenset[str]  # of region, llm, tier: what the source does not name

    @property
    def first_day(self) -> date:
        """Of those that are read."""
        return max(self.first_at.date(), self.last_at.date() - timedelta(days=MOST_DAYS))

    @property
    def last_whole_day(self) -> date | None:
        """The last day that was recorded to its end; None without one that has a day before it.

        A day ends where as much time is left as 20 requests take in the mean, or an hour.
        """
        mean_s = (self.last_at - self.first_at).total_seconds() / max(self.requests, 1)
        slack = timedelta(seconds=max(3600.0, 20 * mean_s))
        ends = midnight(self.last_at.date() + timedelta(days=1))
        last = (
            self.last_at.date() if ends - self.last_at <= slack else self.last_at.date() - timedelta(days=1)
        )
        begins = midnight(self.first_at.date())
        first = self.first_at.date() + timedelta(days=int(self.first_at - begins > timedelta(hours=12)))
        return last if last > first else None


def trace_name(file: Path) -> str:
    """A name for the trace of a file: its own, without endings, as traces may be called."""
    plain = re.sub(r"[^\w.-]+", "_", file.name.split(".csv")[0].split(".jsonl")[0].split(".parquet")[0])
    return plain.strip("._-")[:60] or "trace"


def land(file: Path, folder: Path, catalogue: Catalogue, as_llm: str | None, progress: Progress) -> Brought:
    """Land a file in a lake of its own under `folder`, in the place of what was there.

    Errors as of `land_one`; ConfigError where no row is a request, or `as_llm` has no profile.
    """
    if not file.exists():
        raise ConfigError(f"There is no file {file}. Name one, or --trace NAME of a trace that has landed.")
    require_profiled(as_llm, catalogue)
    name = trace_name(file)
    for made in ("lake", "landing"):
        shutil.rmtree(folder / made, ignore_errors=True)
    (folder / "landing").mkdir(parents=True)
    link = folder / "landing" / file.name
    link.symlink_to(file.resolve())
    mapped = _write_mapping(file, link, name, catalogue, as_llm)
    lake = Lake(folder / "lake")
    report = land_one(link, lake, catalogue, progress)
    if not report.rows_kept:
        raise ConfigError(none_kept(file.name, report.rows_in, report.reasons))
    return told(lake, name, file.name, report.format, report.reasons, catalogue, as_llm, mapped)


def none_kept(file: str, rows: int, reasons: Mapping[str, int]) -> str:
    """Why nothing can be said of a file, in a line."""
    why, count = next(iter(reasons.items()), ("it is empty", rows))
    if why.startswith("output_tokens"):
        return (
            f"{file}: none of its {rows:,} rows tells how long the answer was ({why}, {count:,} rows), and "
            "GPUs hang on that. Record output tokens, or start from an engine's metrics."
        )
    return f"{file}: none of its {rows:,} rows is a request: {why}, {count:,} rows. Mend them."


def copy(source: Lake, trace: str, folder: Path, catalogue: Catalogue, as_llm: str | None) -> Brought:
    """The last days of a trace that has landed, in a lake of its own under `folder`."""
    require_profiled(as_llm, catalogue)
    days = source.days("requests", trace)
    if not days:
        there = sorted({path.parent.name.removeprefix("trace=") for path in source.files("ingests")})
        raise LakeError(
            f"The trace {trace!r} has no requests. Landed is: {', '.join(there) or 'nothing'}. "
            "Name one of these, or a trace file."
        )
    shutil.rmtree(folder / "lake", ignore_errors=True)
    lake = Lake(folder / "lake")
    for day in days:
        if day >= days[-1] - timedelta(days=MOST_DAYS):
            for table in ("requests", "ran_fleets"):
                for path in source.files(table, trace=trace, day=day):
                    _copied(path.read_bytes(), lake.path(table, path.stem, trace=trace, day=day))
    for table in TABLES:
        for path in source.files(table, trace=trace):
            _copied(path.read_bytes(), lake.path(table, path.stem, trace=trace))
    ingests = lake.sql("select format from ingests where trace = $trace", trace=trace)["format"].to_pylist()
    mapped = frozenset({"region", "llm", "tier"})  # what landed stays as it was mapped
    return told(lake, trace, trace, ", ".join(sorted(set(ingests))) or "made", {}, catalogue, as_llm, mapped)


def _copied(content: bytes, target: Place) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def require_profiled(llm: str | None, catalogue: Catalogue) -> None:
    """Refuse an llm that stands for others and has no latency profile itself."""
    if llm is not None:
        require_known(llm, profiled(catalogue), "profiled llm", "--as")


def profiled(catalogue: Catalogue) -> list[str]:
    """The llms that some deployment has a latency profile of, in file order."""
    known = {profile.llm for profile in catalogue.latency}
    return [llm for llm in catalogue.llms if llm in known]


def _write_mapping(
    file: Path, link: Path, name: str, catalogue: Catalogue, as_llm: str | None
) -> frozenset[str]:
    """Write what the file does not say beside its link, its own mapping before it; the keys that has."""
    own = mapping_file(file)
    text = own.read_text(encoding="utf-8") if own.is_file() else ""
    said = parse_toml(text, own) if text else {}
    ours = {"region": next(iter(catalogue.regions)), "llm": as_llm or AS_IF, "app": "unknown"}
    lines = [f'{key} = "{value}"' for key, value in ours.items() if key not in said]
    kept = re.sub(r"(?m)^\s*trace\s*=.*$", "", text)
    mapping_file(link).write_text("\n".join([f'trace = "{name}"', *lines, kept, ""]), encoding="utf-8")
    return frozenset(said) & {"region", "llm", "tier"}


def told(
    lake: Lake,
    trace: str,
    source: str,
    form: str,
    left_out: Mapping[str, int],
    catalogue: Catalogue,
    as_llm: str | None,
    mapped: frozenset[str],
) -> Brought:
    """Settle what requests are for, and say what the trace is; requests of no profile leave the lake."""
    known, rows = set(profiled(catalogue)), lake.sql(OF_LLMS, trace=trace).to_pylist()
    mapping = _llm_names(lake)
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
    stands = as_llm or (AS_IF if not named and "llm" not in mapped else None)
    dealt = int(lake.sql(WHAT, trace=trace)["dealt"][0].as_py())
    strictest = catalogue.strictest_tier(catalogue.tiers)
    if unprofiled or (dealt and "tier" not in mapped):
        _settle(lake, trace, catalogue, unprofiled, as_llm, None if "tier" in mapped else strictest)
    what = lake.sql(WHAT, trace=trace).to_pylist()[0]
    lacks = {"llm"} if not named and "llm" not in mapped else set()
    lacks |= {"region"} if len(what["regions"]) == 1 and "region" not in mapped else set()
    lacks |= {"tier"} if dealt and "tier" not in mapped else set()
    llms = [row["llm"] for row in lake.sql(OF_LLMS, trace=trace).to_pylist() if row["llm"] in known]
    if not as_llm and sum(unprofiled.values()) == sum(row["requests"] for row in rows):
        llms = []  # what they were landed as stands for nothing
    return Brought(
        lake, trace, source, form, left_out, what["requests"], what["first_at"], what["last_at"],
        what["input_tokens"], what["output_tokens"], tuple(dict.fromkeys(llms)), named,
        {} if as_llm else unprofiled, stands, tuple(what["regions"]), tuple(what["tiers"]),
        what["app"] if what["apps"] == 1 else None, frozenset(lacks),
    )  # fmt: skip


def _llm_names(lake: Lake) -> Mapping[str, str]:
    """What a mapping file beside the landed file calls an llm of ours."""
    for path in Path(str(lake.root.parent)).glob("landing/*.toml"):
        return dict(parse_toml(path.read_text(encoding="utf-8"), path).get("llm_names", {}))
    return {}


def _settle(
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
    some = lake.sql(OF_LLMS, trace=trace).to_pylist()
    all_unknown = all((row["source_llm"] or row["llm"]) in unprofiled for row in some)
    query = """
    select * exclude (trace, day) replace (
        if(list_contains($strange, coalesce(source_llm, llm)), coalesce($as_llm, llm), llm) as llm,
        if(tier_source = 'dealt', coalesce($tier, tier), tier) as tier,
        if(tier_source = 'dealt', coalesce($deadline_s, deadline_s), deadline_s) as deadline_s
    )
    from requests
    where trace = $trace and day = $day::date
        and ($keeps or not list_contains($strange, coalesce(source_llm, llm)))
    order by arrived_at, request_id
    """
    for day in lake.days("requests", trace):
        table = lake.sql(
            query,
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


def shares(counts: Mapping[str, int]) -> Sequence[tuple[str, float]]:
    """Each name's share of the counts, largest first."""
    total = sum(counts.values())
    return [(name, count / total) for name, count in sorted(counts.items(), key=lambda one: -one[1])]
