"""A trace of one's own, brought into a lake of its own: what it says, and what it does not.

The lake lies beside the page (data/figures/advice/NAME/lake), so that the commands on the page find it.
Where a file names no region all is one place; no urgency: all is of the strictest tier; no llm: all is for
the one that is planned as if. What it names itself stays. A mapping file beside the trace goes before.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from fleetcast.assets.advice.advice_config import CONFIG_HEADER
from fleetcast.assets.advice.imported_trace import DEFAULT_LLM, MAX_DAYS_READ, ImportedTrace, require_profiled
from fleetcast.assets.advice.impute_tiers import impute_tiers_and_llms
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.sql_files import SQL
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.landing import land_file
from fleetcast.assets.traces.prometheus_answers import is_metrics_folder
from fleetcast.assets.traces.staging import ANSWERS_TABLE
from fleetcast.assets.traces.trace_mapping import mapping_file
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.toml_dataclasses import ConfigError, parse_toml

UNKNOWN_REGION_PREFIX = "unknown region "  # what sql/staging/staged.sql says of one that the catalogue lacks
COPIED_TABLES = ("ingests", "tiers", "tier_verdicts", "metric_findings")  # of a trace that has landed before


def trace_name(file: Path) -> str:
    """A name for the trace of a file: its own, without endings, as traces may be called."""
    plain = re.sub(r"[^\w.-]+", "_", file.name.split(".csv")[0].split(".jsonl")[0].split(".parquet")[0])
    return plain.strip("._-")[:60] or "trace"


def import_trace_file(
    file: Path,
    folder: Path,
    catalogue: Catalogue,
    as_llm: str | None,
    progress: Progress,
    output_tokens: int | None = None,
) -> ImportedTrace:
    """Land a file in a lake of its own under `folder`, in the place of what an earlier page left there.

    `output_tokens` are taken for answers whose length the file does not tell. Regions that the catalogue
    lacks become one of its own. Errors as of `land_one`; ConfigError where no row is a request, `as_llm` has
    no profile, or `folder` cannot be emptied.
    """
    if not file.exists():
        raise ConfigError(f"There is no file {file}. Name one, or --trace NAME of a trace that has landed.")
    require_profiled(as_llm, catalogue)
    file = Path(os.path.abspath(file))
    if file.is_dir() and not is_metrics_folder(file):
        raise ConfigError(f"{file} is a folder. Name a trace file in it, or a folder NAME.metrics.")
    _clear_folder(folder, file)
    name, link = trace_name(file), folder / "landing" / file.name
    link.parent.mkdir()
    link.symlink_to(file.resolve())
    said = _write_mapping(file, link, name, catalogue, as_llm, output_tokens)
    lake = Lake(folder / "lake")
    report = land_file(link, lake, catalogue, progress)
    strange = {
        why.removeprefix(UNKNOWN_REGION_PREFIX): rows
        for why, rows in report.reasons.items()
        if why.startswith(UNKNOWN_REGION_PREFIX)
    }
    place = ""
    if strange and "label_names" not in said:
        place = _map_to_one_region(list(strange), lake, link, catalogue)
        report = land_file(link, lake, catalogue, progress)
    if report.format == ANSWERS_TABLE:
        raise ConfigError(
            f"{file.name} holds answers that were judged, no requests: fleetcast plan quality reads them. "
            "Name a trace of requests."
        )
    if not report.rows_kept:
        raise ConfigError(no_requests_message(file.name, report.rows_in, report.reasons))
    mapped = frozenset(said) & {"region", "llm", "tier"}
    came = impute_tiers_and_llms(
        lake, name, file.name, report.format, report.reasons, catalogue, as_llm, mapped
    )
    return came._replace(
        clock=None if "start" in said else report.clock,
        output_tokens_assumed=said.get("output_tokens", output_tokens),
        unknown_regions=strange if place else {},
        fallback_region=place,
    )


def _clear_folder(folder: Path, source: LakePath) -> None:
    """Empty a folder of what an earlier page left there; ConfigError where somebody else's would go."""
    made, config = (folder / "lake", folder / "landing"), folder / "advice.toml"
    other, there = "Name another folder: --out FOLDER.", [one for one in made if one.exists()]
    if there and not (config.is_file() and config.read_text(encoding="utf-8").startswith(CONFIG_HEADER)):
        raise ConfigError(f"{there[0]} is there, of no earlier page, and would be removed. {other}")
    if isinstance(source, Path) and any(source.is_relative_to(one) for one in made):
        raise ConfigError(
            f"{source} lies in the folder of the page, which is made anew. Name what that was made from "
            f"(without FLEETCAST_LAKE={made[0]}), or another folder: --out FOLDER."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config.write_text(CONFIG_HEADER, encoding="utf-8")
        for one in made:
            shutil.rmtree(one, ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}. {other}") from error


def _map_to_one_region(strange: Sequence[str], lake: Lake, link: Path, catalogue: Catalogue) -> str:
    """Tell the mapping beside a link that these regions are one of the catalogue's, unused where one is."""
    used = lake.sql("select distinct region from requests")["region"].to_pylist()
    place = next((one for one in catalogue.regions if one not in used), next(iter(catalogue.regions)))
    names = ", ".join(f'{json.dumps(one, ensure_ascii=False)} = "{place}"' for one in strange)
    own = mapping_file(link)
    own.write_text(f"label_names = {{ {names} }}\n{own.read_text(encoding='utf-8')}", encoding="utf-8")
    return place


def no_requests_message(file: str, rows: int, reasons: Mapping[str, int]) -> str:
    """Why nothing can be said of a file, in a line."""
    why, count = next(iter(reasons.items()), ("it is empty", rows))
    if why.startswith("output_tokens"):
        return (
            f"{file}: none of its {rows:,} rows tells how long the answer was ({why}, {count:,} rows), and "
            "GPUs hang on that. Record output tokens, name a mean to assume (--outputs TOKENS), or start "
            "from an engine's metrics."
        )
    mend = (
        "Name it as source_llm, for which --assume-llm may stand"
        if why.startswith("unknown llm")
        else "Mend them"
    )
    return f"{file}: none of its {rows:,} rows is a request: {why}, {count:,} rows. {mend}."


def copy_landed_trace(
    source: Lake, trace: str, folder: Path, catalogue: Catalogue, as_llm: str | None
) -> ImportedTrace:
    """The last days of a trace that has landed, in a lake of its own under `folder`."""
    require_profiled(as_llm, catalogue)
    days = source.days("requests", trace)
    if not days:
        there = sorted({path.parent.name.removeprefix("trace=") for path in source.files("ingests")})
        raise LakeError(
            f"The trace {trace!r} has no requests. Landed is: {', '.join(there) or 'nothing'}. "
            "Name one of these, or a trace file."
        )
    _clear_folder(folder, source.root)
    lake = Lake(folder / "lake")
    for day in days:
        if day >= days[-1] - timedelta(days=MAX_DAYS_READ):
            for table in ("requests", "ran_fleets"):
                for path in source.files(table, trace=trace, day=day):
                    _copy_bytes(path.read_bytes(), lake.path(table, path.stem, trace=trace, day=day))
    for table in COPIED_TABLES:
        for path in source.files(table, trace=trace):
            _copy_bytes(path.read_bytes(), lake.path(table, path.stem, trace=trace))
    ingests = lake.sql("select format from ingests where trace = $trace", trace=trace)["format"].to_pylist()
    formats, mapped = sorted(set(ingests)), frozenset({"region", "llm", "tier"})  # stays as it was mapped
    dealt = _keys_formats_lack(formats)
    if as_llm and "llm" in dealt:
        mapped -= {"llm"}
    came = impute_tiers_and_llms(
        lake, trace, trace, ", ".join(formats) or "made", {}, catalogue, as_llm, mapped
    )
    tiers = lake.sql("select count(*)::bigint as n from requests where tier_source = 'dealt'")["n"][0].as_py()
    several = {
        "region": "region" in dealt and len(came.regions) > 1,
        "llm": "llm" in dealt and len(came.llms) > 1 and not came.requests_by_source_llm,
        "tier": bool(formats) and tiers > 0,
    }
    return came._replace(dealt=tuple(key for key, is_so in several.items() if is_so))


def _keys_formats_lack(formats: Sequence[str]) -> list[str]:
    """What of region and llm no file of these formats names; metrics and made traces name both."""
    files = [SQL / "sources" / f"{form}.sql" for form in formats]
    if not files or not all(file.is_file() for file in files):
        return []
    texts = [file.read_text(encoding="utf-8") for file in files]
    return [key for key in ("region", "llm") if not any(re.search(rf"\bas {key}\b", one) for one in texts)]


def _copy_bytes(content: bytes, target: LakePath) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _write_mapping(
    file: Path, link: Path, name: str, catalogue: Catalogue, as_llm: str | None, output_tokens: int | None
) -> dict[str, Any]:
    """Write what the file does not say beside its link, its own mapping before it; what that says."""
    own = mapping_file(file)
    text = own.read_text(encoding="utf-8") if own.is_file() else ""
    said = parse_toml(text, own) if text else {}
    ours = {"region": next(iter(catalogue.regions)), "llm": as_llm or DEFAULT_LLM, "app": "unknown"}
    lines = [f'{key} = "{value}"' for key, value in ours.items() if key not in said]
    if output_tokens is not None and "output_tokens" not in said:
        lines.append(f"output_tokens = {output_tokens}")
    kept = re.sub(r"(?m)^\s*trace\s*=.*$", "", text)
    mapping_file(link).write_text("\n".join([f'trace = "{name}"', *lines, kept, ""]), encoding="utf-8")
    return said
