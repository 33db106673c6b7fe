"""Bring a trace file into data/landing, and name its columns in its mapping file."""

import filecmp
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from fleetcast.assets.traces.ingest import LANDING_DIR, IngestError
from fleetcast.assets.traces.trace_mapping import mapping_file
from fleetcast.models.world.toml_dataclasses import ConfigError, parse_toml

COLUMNS_LINE = re.compile(r"(?m)^\s*columns\s*=\s*\{[^\n]*\}[^\n]*\n?")


def bring_file(file: Path, columns: Mapping[str, str]) -> Path:
    """Copy a trace file and its mapping file into data/landing, write `columns` into the mapping file there.

    Return the file there. IngestError if there is no such file, or another one of its name in data/landing.
    """
    if not file.is_file():
        raise IngestError(f"There is no file {file}. Name a trace file, or copy it into data/landing.")
    target = LANDING_DIR / file.name
    if target.resolve() != file.resolve():
        if target.exists() and not filecmp.cmp(file, target, shallow=False):
            raise IngestError(
                f"data/landing has another file {file.name}. Rename yours, or remove that one: "
                f"fleetcast forget {file.name} && rm {target}"
            )
        LANDING_DIR.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{file.name}.part")
        shutil.copy2(file, part)
        part.replace(target)
        if (mapping := mapping_file(file)).is_file() and not mapping_file(target).exists():
            shutil.copy2(mapping, mapping_file(target))
    if columns:
        write_columns(mapping_file(target), columns)
    return target


def write_columns(mapping: Path, columns: Mapping[str, str]) -> None:
    """Write the columns of a log into its mapping file, in place of those there."""
    text = mapping.read_text(encoding="utf-8") if mapping.is_file() else ""
    kept = COLUMNS_LINE.sub("", text)
    if "columns" in parse_toml(kept, mapping):
        raise ConfigError(
            f"{mapping.name} has its own table of columns. Change them there, without --columns."
        )
    mapping.write_text(f"{columns_line(columns)}\n{kept}", encoding="utf-8")


def columns_line(columns: Mapping[str, str]) -> str:
    """Return the line of a mapping file that names the columns of a log."""
    pairs = (f"{name} = {json.dumps(column, ensure_ascii=False)}" for name, column in columns.items())
    return f"columns = {{ {', '.join(pairs)} }}"
