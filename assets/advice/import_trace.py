"""Import a custom trace into a separate lake, with assumptions for the keys that its source does not name.

The lake lies next to the page (data/figures/advice/NAME/lake), where the commands on the page find it. If a
file names no region, all requests are in one region; no tier: all are of the strictest tier; no llm: all are
for the assumed llm. Values in the file stay. A mapping file next to the trace takes precedence.
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
from fleetcast.assets.lake.file_digests import DIGESTS_FOLDER
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies.experiment import share_tables
from fleetcast.assets.traces.bulk_refusals import bulk_remedy
from fleetcast.assets.traces.landing import land_file
from fleetcast.assets.traces.landing_folder import write_columns
from fleetcast.assets.traces.prometheus_answers import is_metrics_folder
from fleetcast.assets.traces.staging import ANSWERS_TABLE
from fleetcast.assets.traces.trace_formats import source_of_format
from fleetcast.assets.traces.trace_mapping import mapping_file
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.toml_dataclasses import ConfigError, parse_toml

UNKNOWN_REGION_PREFIX = "unknown region "  # prefix of the reason in sql/staging/staged.sql
KEPT_FILES = ("advised_days/**/*.*", "trials/experiment=advice/**/*.*")  # of an earlier page: its promises
COPIED_TABLES = ("ingests", "tiers", "tier_verdicts", "metric_findings")  # tables copied with a landed trace


def trace_name(file: Path) -> str:
    """Return a valid trace name for a file: its file name without suffixes."""
    plain = re.sub(r"[^\w.-]+", "_", file.name.split(".csv")[0].split(".jsonl")[0].split(".parquet")[0])
    return plain.strip("._-")[:60] or "trace"


def import_trace_file(
    file: Path,
    folder: Path,
    catalogue: Catalogue,
    as_llm: str | None,
    progress: Progress,
    output_tokens: int | None = None,
    columns: Mapping[str, str] | None = None,
) -> ImportedTrace:
    """Land a file in a separate lake under `folder`, in place of the files of an earlier page.

    `output_tokens` is assumed for answers whose length the file does not give. Regions that are not in the
    catalogue become one of its regions. Raises the errors of `land_file`; ConfigError if no row is a request,
    `as_llm` has no profile, or `folder` cannot be emptied.
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
    mapping = _write_mapping(file, link, name, catalogue, as_llm, output_tokens)
    if columns:
        write_columns(mapping_file(link), columns)
    lake = Lake(folder / "lake")
    report = land_file(link, lake, catalogue, progress)
    unknown = {
        why.removeprefix(UNKNOWN_REGION_PREFIX): rows
        for why, rows in report.reasons.items()
        if why.startswith(UNKNOWN_REGION_PREFIX)
    }
    region = ""
    if unknown and "label_names" not in mapping:
        region = _map_to_one_region(list(unknown), lake, link, catalogue)
        report = land_file(link, lake, catalogue, progress)
    if report.format == ANSWERS_TABLE:
        raise ConfigError(
            f"{file.name} holds scored answers, not requests: fleetcast plan quality reads them. "
            "Name a trace of requests."
        )
    if not report.rows_kept:
        unknown_label = next(iter(report.reasons), "").startswith(("unknown tier", "unknown region"))
        remedy = bulk_remedy(report, file.parent) if unknown_label else None
        raise ConfigError(remedy or no_requests_message(file.name, report.rows_in, report.reasons))
    mapped = frozenset(mapping) & {"region", "llm", "tier"}
    imported = impute_tiers_and_llms(
        lake, name, file.name, report.format, report.reasons, catalogue, as_llm, mapped
    )
    return imported._replace(
        clock=None if "start" in mapping else report.clock,
        output_tokens_assumed=mapping.get("output_tokens", output_tokens),
        unknown_regions=unknown if region else {},
        fallback_region=region,
    )


def _clear_folder(folder: Path, source: LakePath) -> None:
    """Delete the files of an earlier page in a folder; ConfigError if they are not of a page."""
    page_folders, config = (folder / "lake", folder / "landing"), folder / "advice.toml"
    other, existing = "Name another folder: --out FOLDER.", [path for path in page_folders if path.exists()]
    if existing and not (config.is_file() and config.read_text(encoding="utf-8").startswith(CONFIG_HEADER)):
        raise ConfigError(f"{existing[0]} exists, is not of an earlier page, and would be removed. {other}")
    if isinstance(source, Path) and any(source.is_relative_to(path) for path in page_folders):
        raise ConfigError(
            f"{source} lies in the folder of the page, which is replaced. Name the original source "
            f"(without FLEETCAST_LAKE={page_folders[0]}), or another folder: --out FOLDER."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config.write_text(CONFIG_HEADER, encoding="utf-8")
        _clear_lake(page_folders[0])
        shutil.rmtree(page_folders[1], ignore_errors=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}. {other}") from error


def _clear_lake(lake: Path) -> None:
    """Delete the lake of an earlier page, except the promises that it made and what came of them."""
    kept = {
        path: path.read_bytes()
        for pattern in KEPT_FILES
        for place in (lake, lake / DIGESTS_FOLDER)
        for path in place.glob(pattern)
        if path.is_file()
    }
    shutil.rmtree(lake, ignore_errors=True)
    for path, content in kept.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _map_to_one_region(unknown: Sequence[str], lake: Lake, link: Path, catalogue: Catalogue) -> str:
    """Map unknown regions to one of the catalogue's, unused if possible, in the mapping file of a link."""
    used = lake.sql("select distinct region from requests")["region"].to_pylist()
    region = next((name for name in catalogue.regions if name not in used), next(iter(catalogue.regions)))
    names = ", ".join(f'{json.dumps(name, ensure_ascii=False)} = "{region}"' for name in unknown)
    mapping = mapping_file(link)
    text = f"label_names = {{ {names} }}\n{mapping.read_text(encoding='utf-8')}"
    mapping.write_text(text, encoding="utf-8")
    return region


def no_requests_message(file: str, rows: int, reasons: Mapping[str, int]) -> str:
    """Return why a file has no usable request, in a line."""
    why, count = next(iter(reasons.items()), ("it is empty", rows))
    if why.startswith("output_tokens"):
        return (
            f"{file}: none of its {rows:,} rows has the length of the answer ({why}, {count:,} rows), which "
            "decides how many GPUs are needed. Record output tokens, give a mean to assume "
            "(--outputs TOKENS), or start from an engine's metrics."
        )
    remedy = (
        "Name it as source_llm, and give an llm to assume: --assume-llm NAME"
        if why.startswith("unknown llm")
        else "Correct them"
    )
    return f"{file}: none of its {rows:,} rows is a request: {why}, {count:,} rows. {remedy}."


def copy_landed_trace(
    source: Lake, trace: str, folder: Path, catalogue: Catalogue, as_llm: str | None
) -> ImportedTrace:
    """Copy the last days of a landed trace into a separate lake under `folder`."""
    require_profiled(as_llm, catalogue)
    days = source.days("requests", trace)
    if not days:
        landed = source.traces("ingests")
        raise LakeError(
            f"The trace {trace!r} has no requests. Landed traces: {', '.join(landed) or 'none'}. "
            "Name one of these, or a trace file."
        )
    _clear_folder(folder, source.root)
    lake = Lake(folder / "lake")
    for day in days:
        if day >= days[-1] - timedelta(days=MAX_DAYS_READ):
            share_tables(source, lake, ("requests", "ran_fleets"), trace=trace, day=day)
    share_tables(source, lake, COPIED_TABLES, trace=trace)
    ingests = lake.sql("select format, columns from ingests where trace = $trace", trace=trace).to_pylist()
    formats = sorted({row["format"] for row in ingests})
    mapped = frozenset({"region", "llm", "tier"})  # all of them were mapped at landing
    missing_keys = _keys_formats_lack(formats, "".join(row["columns"] or "" for row in ingests))
    if as_llm and "llm" in missing_keys:
        mapped -= {"llm"}
    imported = impute_tiers_and_llms(
        lake, trace, trace, ", ".join(formats) or "made", {}, catalogue, as_llm, mapped
    )
    tiers = lake.sql("select count(*)::bigint as n from requests where tier_source = 'dealt'")["n"][0].as_py()
    several = {
        "region": "region" in missing_keys and len(imported.regions) > 1,
        "llm": "llm" in missing_keys and len(imported.llms) > 1 and not imported.requests_by_source_llm,
        "tier": bool(formats) and tiers > 0,
    }
    return imported._replace(distributed_keys=tuple(key for key, is_several in several.items() if is_several))


def _keys_formats_lack(formats: Sequence[str], columns: str) -> list[str]:
    """Return which of region and llm these formats never name; metrics and synthetic traces name both.

    `columns` are those that were read of logs, which name a region only if they have such a column.
    """
    sources = [source_of_format(form) for form in formats]
    if not sources or None in sources:
        return []
    texts = [source.text for source in sources if source is not None]
    lacking = [
        key for key in ("region", "llm") if not any(re.search(rf"\bas {key}\b", text) for text in texts)
    ]
    return ["region", *lacking] if columns and "region = " not in columns else lacking


def _write_mapping(
    file: Path, link: Path, name: str, catalogue: Catalogue, as_llm: str | None, output_tokens: int | None
) -> dict[str, Any]:
    """Write the mapping file of a link: defaults and the file's own mapping; return the latter."""
    mapping_path = mapping_file(file)
    text = mapping_path.read_text(encoding="utf-8") if mapping_path.is_file() else ""
    mapping = parse_toml(text, mapping_path) if text else {}
    defaults = {"region": next(iter(catalogue.regions)), "llm": as_llm or DEFAULT_LLM, "app": "unknown"}
    lines = [f'{key} = "{value}"' for key, value in defaults.items() if key not in mapping]
    if output_tokens is not None and "output_tokens" not in mapping:
        lines.append(f"output_tokens = {output_tokens}")
    kept = re.sub(r"(?m)^\s*trace\s*=.*$", "", text)
    mapping_file(link).write_text("\n".join([f'trace = "{name}"', *lines, kept, ""]), encoding="utf-8")
    return mapping
