"""Read logs of served requests and the limits of an engine, for `fleetcast calibrate`.

A log is a CSV with arrival_s, input_tokens, output_tokens, ttft_s and e2e_s, and perhaps queued_s: when the
engine had the request, on the clock of arrival_s. Or it is a file of JSON lines with the fields of
vLLM's statistics: input_toks, output_toks, arrival_time and, on the engine's own clock, queued_ts,
first_token_ts and last_token_ts. The limits of an engine are in the metadata of a benchmark (JSON) or in its
start-up log (vLLM, SGLang); models/world/fleet_config.py has fleetcast's names of them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fleetcast.models.trials.engine_fit import LoggedRequests
from fleetcast.models.world.calendar import DAY_S

SLOWEST_TOKEN_S = 5.0  # median TPOT of a log, above which its times must be milliseconds
CUT_SHARE = 0.05  # share of requests with exactly the largest token count, above which it is a limit
SLOWEST_FRONTEND_S = 1.0  # least time from arrival to engine, above which these are two clocks
VLLM_COLUMNS = {
    "arrival_time": "arrival_s",
    "input_toks": "input_tokens",
    "output_toks": "output_tokens",
    "queued_ts": "queued_s",
    "first_token_ts": "first_s",
    "last_token_ts": "last_s",
}
# Names of an engine's limits, in JSON or as key=value in a log: vLLM's, then SGLang's.
LIMIT_NAMES = {
    "max_batch": ("max_num_seqs", "max_running_requests"),
    "max_prefill_tokens": ("max_num_batched_tokens", "chunked_prefill_size"),
    "kv_tokens": ("num_kv_tokens", "max_total_num_tokens"),
    "kv_blocks": ("num_gpu_blocks",),
    "block_tokens": ("block_size",),
    "is_chunked": ("enable_chunked_prefill",),
    "async_scheduling": ("async_scheduling",),
    "is_not_async": ("disable_overlap_schedule",),
    "has_prefix_cache": ("enable_prefix_caching",),
    "tensor_parallel": ("tensor_parallel_size", "tp_size"),
    "data_parallel_size": ("data_parallel_size", "dp_size"),
}
LOG_PATTERNS = {  # sentences of vLLM's start-up log
    "kv_tokens": r"GPU KV cache size: ([\d,]+) tokens",
    "async_scheduling": r"Asynchronous scheduling is (enabled)",
    "is_chunked": r"Chunked prefill is (enabled)",
}
VALUE_PATTERN = r"['\"]?\s*[=:]\s*['\"]?(\d+|[Tt]rue|[Ff]alse)\b"


class CalibrationError(ValueError):
    """An unusable log; the message names line, rule and remedy."""


class RequestLog(NamedTuple):
    """The requests of a log, notes for the user about them, and the front end of the engine."""

    requests: LoggedRequests
    notes: list[str]
    frontend_s: float | None = None  # None: the log does not have it


def read_log(path: Path) -> RequestLog:
    """Read the requests of a log, with rows in any order; other columns are ignored.

    Raises CalibrationError for a row that breaks a rule: no row is dropped.
    """
    notes: list[str] = []
    table = read_jsonl_log(path, notes) if path.suffix in (".jsonl", ".json") else read_csv_log(path)
    columns = {name: numeric_column(table, name) for name in LoggedRequests._fields}
    for name, column in columns.items():
        refuse_bad_rows(~np.isfinite(column), f"{name} must be a number", path, table)
    arrival_s, inputs, outputs, ttft_s, e2e_s = columns.values()
    for bad, rule in (
        ((inputs < 1) | (inputs % 1 != 0), "input_tokens must be a whole number from 1"),
        ((outputs < 1) | (outputs % 1 != 0), "output_tokens must be a whole number from 1"),
        (ttft_s <= 0, "ttft_s must be above 0"),
        (ttft_s > e2e_s, "ttft_s must not exceed e2e_s, the seconds from arrival to the last token"),
        ((outputs > 1) & (ttft_s == e2e_s), "with two tokens or more e2e_s must exceed ttft_s"),
        (e2e_s > DAY_S, "e2e_s must be under a day; give seconds"),
    ):
        refuse_bad_rows(bad, rule, path, table)
    token_s = (e2e_s - ttft_s)[outputs > 1] / (outputs - 1)[outputs > 1]
    if token_s.size and np.median(token_s) > SLOWEST_TOKEN_S:
        raise CalibrationError(
            f"{path.name}: the median time per output token is {np.median(token_s):.3g} s, must be "
            f"at most {SLOWEST_TOKEN_S:g} s. Are these milliseconds? Divide by 1000."
        )
    notes += [f"{share:.0%} of the requests have exactly {limit:,} {name}: they were cut there."
              for name, share, limit in truncated_tokens(inputs, outputs)]  # fmt: skip
    order = np.argsort(arrival_s, kind="stable")
    tokens = (inputs[order].astype(np.int32), outputs[order].astype(np.int32))
    requests = LoggedRequests(arrival_s[order], *tokens, ttft_s[order], e2e_s[order])
    return RequestLog(requests, notes, frontend_seconds(path, table))


def frontend_seconds(path: Path, table: pd.DataFrame) -> float | None:
    """Return the least seconds from a request's arrival to the engine's queue; None if they are not known.

    It is the least, because an engine that computes a step takes a request in at the end of the step: the
    replay has that wait itself. CalibrationError where queued_s is on another clock than arrival_s.
    """
    if "queued_s" not in table.columns:
        return None
    queued_s = numeric_column(table, "queued_s")
    refuse_bad_rows(~np.isfinite(queued_s), "queued_s must be a number, or the column absent", path, table)
    least_s = float(np.min(queued_s - numeric_column(table, "arrival_s")))
    if not 0 <= least_s <= SLOWEST_FRONTEND_S:
        raise CalibrationError(
            f"{path.name}: queued_s is at least {least_s:,.3f} s after arrival_s, must be 0 to "
            f"{SLOWEST_FRONTEND_S:g} s. Give both on one clock, or drop queued_s."
        )
    return round(least_s, 6)


def read_csv_log(path: Path) -> pd.DataFrame:
    """Read the rows of a CSV, as text."""
    try:
        table = pd.read_csv(path, dtype=str, skipinitialspace=True)
    except FileNotFoundError:
        raise CalibrationError(f"There is no file {path}. Name a log of measured requests.") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, OSError) as error:
        raise CalibrationError(f"{path.name} is not a CSV: {error}. Export it again.") from error
    require_columns(path, table, LoggedRequests._fields)
    return table


def read_jsonl_log(path: Path, notes: list[str]) -> pd.DataFrame:
    """Read the rows of JSON lines, with the engine's times shifted to the clock of the arrivals."""
    try:
        table = pd.DataFrame([json.loads(line) for line in path.read_text().splitlines() if line.strip()])
    except FileNotFoundError:
        raise CalibrationError(f"There is no file {path}. Name a log of measured requests.") from None
    except (ValueError, OSError, RecursionError) as error:
        raise CalibrationError(
            f"{path.name} is not a file of JSON lines: {error}. Export it again."
        ) from error
    require_columns(path, table, tuple(VLLM_COLUMNS))
    table = table.rename(columns=VLLM_COLUMNS)
    unended = table["last_s"].isna() | table["first_s"].isna()
    refuse_bad_rows(
        unended.to_numpy(),
        "it never ended, so its tokens, for which others waited, are not known. Measure until all end",
        path,
        table,
    )
    arrival_s, queued_s = numeric_column(table, "arrival_s"), numeric_column(table, "queued_s")
    offset_s = float(np.min(queued_s - arrival_s))
    if 0 <= offset_s <= SLOWEST_FRONTEND_S:  # one clock: the offset is the front end
        offset_s = 0.0
    else:
        notes.append(
            f"The clocks of arrival_time and queued_ts differ by {offset_s:,.3f} s (minimum of all rows); "
            "this offset is subtracted. So the front end is not known."
        )
        table = table.drop(columns="queued_s")
    for name, source in (("ttft_s", "first_s"), ("e2e_s", "last_s")):
        table[name] = numeric_column(table, source) - arrival_s - offset_s
    return table


def require_columns(path: Path, table: pd.DataFrame, names: tuple[str, ...]) -> None:
    """Raise CalibrationError if a log lacks one of these columns."""
    missing = [name for name in names if name not in table.columns]
    if missing:
        present = ", ".join(map(str, table.columns)) or "none"
        raise CalibrationError(
            f"{path.name} lacks the columns {', '.join(missing)}; it has {present}. Rename or add them."
        )


def numeric_column(table: pd.DataFrame, name: str) -> np.ndarray:
    """Return a column as numbers, shape (rows,); NaN where a value is not a number."""
    return pd.to_numeric(table[name], errors="coerce").to_numpy(np.float64)


def refuse_bad_rows(bad: np.ndarray, rule: str, path: Path, table: pd.DataFrame) -> None:
    """Raise CalibrationError with the first bad line and the count, if any row of `bad`, (rows,), is true."""
    if bad.any():
        row_number = int(np.argmax(bad))
        shown = [name for name in LoggedRequests._fields if name in table.columns]
        row = ", ".join(f"{name}={table[name].iloc[row_number]}" for name in shown)
        line = row_number + (1 if path.suffix in (".jsonl", ".json") else 2)
        raise CalibrationError(
            f"{path.name} line {line} ({row}): {rule}. {bad.sum()} of {bad.size} rows break this; "
            "correct or drop them."
        )


def truncated_tokens(inputs: np.ndarray, outputs: np.ndarray) -> Iterator[tuple[str, float, int]]:
    """Yield which tokens, each of shape (R,), were cut to a limit: name, share of requests, limit."""
    for name, tokens in (("input tokens", inputs), ("output tokens", outputs)):
        share = float(np.mean(tokens == tokens.max()))
        if share >= CUT_SHARE and np.unique(tokens).size > 1:
            yield name, share, int(tokens.max())


def max_concurrency(requests: LoggedRequests) -> int:
    """Return the largest number of requests between their first and last token at the same time."""
    first, last = requests.arrival_s + requests.ttft_s, requests.arrival_s + requests.e2e_s
    times = np.concatenate([first, last])
    change = np.concatenate([np.ones(first.size), -np.ones(last.size)])
    order = np.lexsort((change, times))  # at equal times, requests that end come first
    return int(np.cumsum(change[order]).max())


def read_engine_limits(path: Path) -> dict[str, Any]:
    """Read an engine's limits: the fields of a Deployment that the file names, and has_prefix_cache."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise CalibrationError(
            f"{path}: {error.strerror}. Name the engine's metadata or its start-up log."
        ) from None
    found: dict[str, int | bool] = {}
    for name, pattern in LOG_PATTERNS.items():
        if match := re.search(pattern, text):
            value = match.group(1)
            found[name] = value == "enabled" or int(value.replace(",", ""))
    for name, keys in LIMIT_NAMES.items():
        for key in keys:
            if name not in found and (match := re.search(rf"\b{key}{VALUE_PATTERN}", text)):
                value = match.group(1)
                found[name] = int(value) if value.isdigit() else value.lower() == "true"
    if not found:
        raise CalibrationError(
            f"{path.name} names none of "
            f"{', '.join(key for keys in LIMIT_NAMES.values() for key in keys)}. Give "
            "the metadata (JSON) or the start-up log of vLLM or SGLang."
        )
    if (ranks := found.get("data_parallel_size", 1)) > 1:
        raise CalibrationError(
            f"{path.name}: data_parallel_size is {ranks}, but a profile is fitted to one engine. Give the "
            "log of an engine without data-parallel ranks."
        )
    return to_deployment_fields(found)


def to_deployment_fields(found: dict[str, int | bool]) -> dict[str, Any]:
    """Return the engine's limits as fields of a Deployment, and has_prefix_cache."""
    if "kv_tokens" not in found and {"kv_blocks", "block_tokens"} <= found.keys():
        found["kv_tokens"] = found["kv_blocks"] * found["block_tokens"]
    if "async_scheduling" not in found and "is_not_async" in found:
        found["async_scheduling"] = not found["is_not_async"]
    limits: dict[str, Any] = {
        name: found[name]
        for name in ("max_batch", "max_prefill_tokens", "kv_tokens", "async_scheduling", "tensor_parallel")
        if name in found
    }
    if "is_chunked" in found:
        limits["batching"] = "chunked" if found["is_chunked"] else "whole"
    return {**limits, "has_prefix_cache": found.get("has_prefix_cache", False)}
