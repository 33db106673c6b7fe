"""A trace of one's own, brought into a lake of its own: what it says, and what it does not.

The lake lies beside the page (data/figures/advice/NAME/lake), so that the commands on the page find it.
Where a file names no region all is one place; no urgency: all is of the strictest tier; no llm: all is for
the one that is planned as if. What it names itself stays. A mapping file beside the trace goes before.
"""

import re
import shutil
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from assets.advice.brought import AS_IF, MOST_DAYS, Brought, require_profiled
from assets.advice.settled import told
from assets.lake.settings import Progress
from assets.lake.store import Place
from assets.lake.warehouse import Lake, LakeError
from assets.traces.landing import land_one
from assets.traces.mapping import mapping_file
from models.world.catalogue import Catalogue
from models.world.reading import ConfigError, parse_toml

TABLES = ("ingests", "tiers", "tier_verdicts", "metric_findings")  # of a trace that has landed before


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
