"""The CSV of measured requests that `fleetcast calibrate` reads, and the profile that it writes."""

import dataclasses
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from models.latency.requests import Requests
from models.world.catalogue import CATALOGUE_DIR, LatencyProfile

LATENCY = CATALOGUE_DIR / "latency.toml"
BLOCK = "[[profile]]\n"
SLOWEST_TOKEN_S = 5.0  # in the median of a log; more are milliseconds
DAY_S = 86_400.0


class CalibrationError(ValueError):
    """A file of measured requests that cannot be used; the message names line, rule and remedy."""


def read_requests(path: Path) -> Requests:
    """Read arrival_s, input_tokens, output_tokens, ttft_s and e2e_s of each request, in any order of rows.

    Other columns are ignored. Raises CalibrationError for a row that breaks a rule: nothing is dropped.
    """
    try:
        table = pd.read_csv(path, dtype=str, skipinitialspace=True)
    except FileNotFoundError:
        raise CalibrationError(f"There is no file {path}. Name a CSV of measured requests.") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, OSError) as error:
        raise CalibrationError(f"{path.name} is no CSV: {error}. Export it again.") from error
    lacking = [name for name in Requests._fields if name not in table.columns]
    if lacking:
        has = ", ".join(map(str, table.columns)) or "none"
        raise CalibrationError(
            f"{path.name} lacks the columns {', '.join(lacking)}; it has {has}. Name them so."
        )
    columns = {
        name: pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64) for name in Requests._fields
    }
    for name, numbers in columns.items():
        refuse_where(~np.isfinite(numbers), f"{name} must be a number", path, table)
    arrival_s, inputs, outputs, ttft_s, e2e_s = columns.values()
    for bad, rule in (
        ((inputs < 1) | (inputs % 1 != 0), "input_tokens must be a whole number from 1"),
        ((outputs < 1) | (outputs % 1 != 0), "output_tokens must be a whole number from 1"),
        (ttft_s <= 0, "ttft_s must be above 0"),
        (ttft_s > e2e_s, "ttft_s must not exceed e2e_s, the seconds from arrival to the last token"),
        ((outputs > 1) & (ttft_s == e2e_s), "with two tokens or more e2e_s must exceed ttft_s"),
        (e2e_s > DAY_S, "e2e_s must be under a day; give seconds"),
    ):
        refuse_where(bad, rule, path, table)
    token_s = (e2e_s - ttft_s)[outputs > 1] / (outputs - 1)[outputs > 1]
    if token_s.size and np.median(token_s) > SLOWEST_TOKEN_S:
        raise CalibrationError(
            f"{path.name}: tokens follow each other after {np.median(token_s):.3g} s in the median, must be "
            f"at most {SLOWEST_TOKEN_S:g} s. Are these milliseconds? Divide by 1000."
        )
    order = np.argsort(arrival_s, kind="stable")
    tokens = (inputs[order].astype(np.int32), outputs[order].astype(np.int32))
    return Requests(arrival_s[order], *tokens, ttft_s[order], e2e_s[order])


def refuse_where(bad: np.ndarray, rule: str, path: Path, table: pd.DataFrame) -> None:
    """Name the first bad line of the file, as an editor counts them, and how many there are."""
    if bad.any():
        at = int(np.argmax(bad))
        row = ", ".join(f"{name}={table[name].iloc[at]}" for name in Requests._fields)
        raise CalibrationError(
            f"{path.name} line {at + 2} ({row}): {rule}. {bad.sum()} of {bad.size} rows break this; "
            "mend or drop them."
        )


def to_toml(profile: LatencyProfile) -> str:
    """The profile as a block of data/catalogue/latency.toml."""
    fields = ((name, value) for name, value in dataclasses.asdict(profile).items() if value is not None)
    return BLOCK + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields)


def write_profile(profile: LatencyProfile, path: Path) -> bool:
    """Put the profile into a latency.toml in place of that of the same deployment, or at its end.

    Returns whether one was replaced. The file appears whole or not at all.
    """
    head, *blocks = path.read_text(encoding="utf-8").split(BLOCK)
    kept = [block for block in blocks if deployment_of(tomllib.loads(block)) != deployment_of(vars(profile))]
    parts = [head, *(BLOCK + block for block in kept), to_toml(profile)]
    aside = path.with_name(path.name + ".tmp")
    aside.write_text("\n\n".join(part.rstrip("\n") for part in parts) + "\n", encoding="utf-8")
    os.replace(aside, path)
    return len(kept) < len(blocks)


def deployment_of(fields: dict[str, Any]) -> tuple[Any, ...]:
    """What one profile is of."""
    return fields.get("llm"), fields.get("gpu"), fields.get("tensor_parallel")
