"""Read logs of served requests and the limits of an engine, for `fleetcast calibrate`.

A log is a CSV with arrival_s, input_tokens, output_tokens, ttft_s and e2e_s, and perhaps queued_s: when the
engine had the request, on the clock of arrival_s. Or it is a file of JSON lines with the fields of
vLLM's statistics: input_toks, output_toks, arrival_time and, on the engine's own clock, queued_ts,
first_token_ts and last_token_ts. Or it is the result of a benchmark (bench_results.py). The limits of an
engine are in the metadata of a benchmark (JSON) or in its start-up log (vLLM, SGLang);
models/world/fleet_config.py has fleetcast's names of them.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fleetcast.assets.studies.bench_results import read_bench_runs
from fleetcast.assets.studies.log_rows import (
    PLACE,
    CalibrationError,
    numeric_column,
    read_json_documents,
    refuse_bad_rows,
    require_columns,
)
from fleetcast.models.trials.engine_fit import LoggedRequests
from fleetcast.models.world.calendar import DAY_S

SLOWEST_TOKEN_S = 5.0  # median TPOT of a log, above which its times must be milliseconds
CUT_SHARE = 0.05  # share of requests with exactly the largest token count, above which it is a limit
RUN_GAP_S = 1.0  # an idle engine between two runs: all requests of the first have ended
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


class RequestLog(NamedTuple):
    """The requests of a log, notes for the user about them, and the front end of the engine."""

    requests: LoggedRequests
    notes: list[str]
    frontend_s: float | None = None  # None: the log does not have it
    run_starts: tuple[int, ...] = (0,)  # index of the first request of each run


def read_logs(paths: list[Path]) -> RequestLog:
    """Read logs and benchmark results of one engine as one log, each run after the other.

    Raises CalibrationError for a row that breaks a rule: no row is dropped.
    """
    logs = [read_log(path) for path in paths]
    starts, count = [], 0
    for log in logs:
        starts += [count + start for start in log.run_starts]
        count += log.requests.arrival_s.size
    return RequestLog(
        join_runs([log.requests for log in logs]),
        [note for log in logs for note in log.notes],
        min((log.frontend_s for log in logs if log.frontend_s is not None), default=None),
        tuple(starts),
    )


def read_log(path: Path) -> RequestLog:
    """Read the requests of a log or a benchmark's result, rows in any order; other columns are ignored.

    Raises CalibrationError for a row that breaks a rule: no row is dropped.
    """
    notes: list[str] = []
    tables = read_json_log(path, notes) if path.suffix in (".jsonl", ".json") else [read_csv_log(path)]
    runs = [check_requests(path, table) for table in tables if len(table)]
    if not runs:
        raise CalibrationError(f"{path.name} has no requests. Name a log of measured requests.")
    requests = join_runs(runs)
    tokens = requests.input_tokens, requests.output_tokens
    if "error" not in tables[0].columns:  # a benchmark chooses its lengths: none was cut
        notes += [f"{share:.0%} of the requests have exactly {limit:,} {name}: they were cut there."
                  for name, share, limit in truncated_tokens(*tokens)]  # fmt: skip
    starts = np.cumsum([0, *(run.arrival_s.size for run in runs)])[:-1]
    return RequestLog(requests, notes, frontend_seconds(path, tables[0]), tuple(starts.tolist()))


def check_requests(path: Path, table: pd.DataFrame) -> LoggedRequests:
    """Return the requests of a table, sorted by arrival; CalibrationError for a row that breaks a rule."""
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
    order = np.argsort(arrival_s, kind="stable")
    tokens = (inputs[order].astype(np.int32), outputs[order].astype(np.int32))
    return LoggedRequests(arrival_s[order], *tokens, ttft_s[order], e2e_s[order])


def join_runs(runs: list[LoggedRequests]) -> LoggedRequests:
    """Return the runs as one: each begins when the engine is idle after the one before."""
    joined = runs[:1]
    for run in runs[1:]:
        idle_s = float(np.max(joined[-1].arrival_s + joined[-1].e2e_s)) + RUN_GAP_S
        joined.append(run._replace(arrival_s=run.arrival_s - run.arrival_s[0] + idle_s))
    return LoggedRequests._make(np.concatenate(columns) for columns in zip(*joined, strict=True))


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
    table[PLACE] = [f"line {line}" for line in range(2, len(table) + 2)]
    return table


def read_json_log(path: Path, notes: list[str]) -> list[pd.DataFrame]:
    """Read a JSON file as a table for each run: a benchmark's result, or else the JSON lines of vLLM."""
    documents = read_json_documents(path)
    runs = read_bench_runs(documents, path, notes)
    return [read_vllm_lines(documents, path, notes)] if runs is None else runs


def read_vllm_lines(documents: list[Any], path: Path, notes: list[str]) -> pd.DataFrame:
    """Return the rows of vLLM's JSON lines, with the engine's times shifted to the clock of the arrivals."""
    table = pd.DataFrame(documents)
    require_columns(path, table, tuple(VLLM_COLUMNS))
    table = table.rename(columns=VLLM_COLUMNS)
    table[PLACE] = [f"line {line}" for line in range(1, len(table) + 1)]
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


def truncated_tokens(inputs: np.ndarray, outputs: np.ndarray) -> Iterator[tuple[str, float, int]]:
    """Yield which tokens, each of shape (R,), were cut to a limit: name, share of requests, limit."""
    for name, tokens in (("input tokens", inputs), ("output tokens", outputs)):
        share = float(np.mean(tokens == tokens.max()))
        if share >= CUT_SHARE and np.unique(tokens).size > 1:
            yield name, share, int(tokens.max())


def read_engine_limits(path: Path) -> dict[str, Any]:
    """Read an engine's limits: the fields of a Deployment that the file names, and has_prefix_cache.

    data_parallel_size is among them where the engine has several ranks; the other limits are those of a rank.
    """
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
    if found.get("data_parallel_size", 1) > 1:
        limits["data_parallel_size"] = found["data_parallel_size"]
    return {**limits, "has_prefix_cache": found.get("has_prefix_cache", False)}
