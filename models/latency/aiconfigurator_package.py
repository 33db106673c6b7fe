"""Ask aiconfigurator-core for the tables of a profile: what only this file knows about the package.

Its answers are plain values for JSON, which are kept on disk (profile_cache.py). Whatever the package raises
becomes the text of a refusal. Nothing that it logs reaches the terminal.
"""

import logging
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.roofline import DECODE_KNOTS, PREFILL_KNOTS
from fleetcast.models.world.toml_dataclasses import ConfigError, shorten_text

CORE_PACKAGE = "aiconfigurator-core"
TABLES_VERSION = 2  # raise it when the tables of a query change: no older answer is then read from disk
CHUNK_KNOTS = (8, 16, 32, 64)  # tokens: below the other profiles' knots, for the last part of a prompt
PASS_KNOTS = (*CHUNK_KNOTS, *PREFILL_KNOTS)
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192)  # tokens of a request in the cache
BETWEEN_GPUS = re.compile(r"_ar(_\d+)?$|dispatch")  # names of all-reduces, and of sending tokens to experts
IN_EXPERTS = re.compile(r"_moe(_|$)")  # names of operations in experts, and of sending tokens there and back
MOST_CACHED = 1 << 19  # tokens of all requests: more than the memory of an instance usually holds
CHUNKS, EARLIER = (512, 2048), (2048, 8192, 32768)  # tokens of a pass, and of the context before it


class PackageLacksData(ConfigError):
    """The package has no data for a deployment, or is not installed; the message says which."""


class EngineQuery(NamedTuple):
    """A question to the package: an llm's config.json on GPUs of one system, under one engine."""

    config: str  # text of config.json
    quantisation: str  # text of hf_quant_config.json; empty: none
    gemm_bits: str  # quantisation of the matrix products; empty: that of the config
    is_mixture: bool
    system: str
    engine: str
    tensor_parallel: int
    version: str  # of the package
    expert_bits: str = ""  # quantisation of the experts; empty: that of the config
    expert_parallel: int = 1  # GPUs over which the experts are spread whole; the others split each expert
    cache_bits: str = ""  # quantisation of the KV cache; empty: that of the config
    ranks: int = 1  # data-parallel ranks, which share the experts; each has as many requests


def installed_version() -> str:
    """Return the version of the package; PackageLacksData if absent."""
    try:
        import aiconfigurator_core  # noqa: F401
    except (ImportError, OSError) as error:
        raise PackageLacksData(
            f"{CORE_PACKAGE} is not installed (it has wheels for Linux, and for macOS on ARM)"
        ) from error
    from importlib.metadata import version

    return version(CORE_PACKAGE)


def ask_package(query: EngineQuery) -> dict[str, Any]:
    """Return the tables of a query, or the reason why there are none, as plain values for JSON."""
    try:
        with quiet_package(), tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(query.config, encoding="utf-8")
            if query.quantisation:
                Path(folder, "hf_quant_config.json").write_text(query.quantisation, encoding="utf-8")
            return measure_tables(query, folder)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of its Rust part is no Exception
        reason = " ".join(str(error).split()).replace(tempfile.gettempdir(), "")
        if isinstance(error, KeyError):
            reason = f"it finds no {reason} in config.json or its own tables"
        return {"refusal": shorten_text(reason.rstrip(".") or type(error).__name__)}


@contextmanager
def quiet_package() -> Iterator[None]:
    """Keep the package's log lines and warnings from the terminal."""
    logger = logging.getLogger("aiconfigurator_core")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def measure_tables(query: EngineQuery, folder: str) -> dict[str, Any]:
    """Return the tables of a query whose config.json is in `folder`; raises what the package raises."""
    from aiconfigurator_core.sdk import perf_database

    if perf_database.get_version_slots(query.system, query.engine) is None:
        return {"refusal": f"no kernels of {query.engine} were timed on {query.system}"}
    version = perf_database.resolve_query_version(query.system, query.engine, "current")
    engine = compile_engine(query, folder, version)
    prefill_s = [engine.predict_prefill_latency(1, n, 0) / 1e3 for n in PASS_KNOTS]
    step_s = [
        [engine.decode_step_latency(b, x, 2) / 1e3 if b * x <= MOST_CACHED else np.nan for x in CONTEXTS]
        for b in DECODE_KNOTS
    ]
    first_s = {c: engine.predict_prefill_latency(1, c, 0) / 1e3 for c in CHUNKS}
    later_s = [  # the package counts a prompt with the part of it that is in the cache
        [(engine.predict_prefill_latency(1, c + x, x) / 1e3 - first_s[c]) for x in EARLIER] for c in CHUNKS
    ]
    decode_s, kv_token_s = fit_decode_lines(np.array(DECODE_KNOTS), np.array(CONTEXTS), np.array(step_s))
    context_s = fit_context_token_s(np.array(CHUNKS), np.array(EARLIER), np.array(later_s))
    one_pass = {"batch_size": 1, "osl": 2, "mode": "static_ctx"}
    passes = [engine.run_static_per_op(**one_pass, isl=n)[0] for n in PASS_KNOTS]
    expert_s = [operations_s(each, IN_EXPERTS) for each in passes if query.ranks > 1]
    return {
        "engine_version": version,
        "tables": [
            PASS_KNOTS,
            np.maximum.accumulate(prefill_s).round(7).tolist(),
            DECODE_KNOTS,
            np.maximum.accumulate(decode_s).round(7).tolist(),
            float(f"{kv_token_s:.4g}"),
        ],
        "prefill_per_context_token_s": float(f"{context_s:.4g}"),
        "between_s": [
            [operations_s(each, BETWEEN_GPUS) for each in passes],
            [operations_s(engine.decode_step_per_op(b, CONTEXTS[0], 2), BETWEEN_GPUS) for b in DECODE_KNOTS],
        ],
        "expert_s": np.minimum(np.maximum.accumulate(expert_s), prefill_s[: len(expert_s)]).tolist(),
    }


def compile_engine(query: EngineQuery, folder: str, version: str) -> Any:
    """Return the package's engine for a query; `version` is that of the engine's kernels."""
    from aiconfigurator_core.sdk.engine import EngineHandle

    options: dict[str, Any] = {"tp_size": query.tensor_parallel, "backend_version": version}
    bits = {
        "gemm_quant_mode": query.gemm_bits,
        "moe_quant_mode": query.expert_bits,
        "kvcache_quant_mode": query.cache_bits,
    }
    options |= {key: name for key, name in bits.items() if name}
    if query.is_mixture:
        options["attention_dp_size"] = query.ranks
        options["moe_tp_size"] = query.tensor_parallel * query.ranks // query.expert_parallel
        options["moe_ep_size"] = query.expert_parallel
    engine = EngineHandle.compile(folder, query.system, query.engine, **options)
    try:
        engine.predict_prefill_latency(1, PASS_KNOTS[0], 0)
    except RuntimeError:  # it assumes attention in the bits of the weights, which was not timed everywhere
        options["fmha_quant_mode"] = "bfloat16"
        engine = EngineHandle.compile(folder, query.system, query.engine, **options)
    return engine


def operations_s(operations: Sequence[tuple[Any, ...]], names: re.Pattern[str]) -> float:
    """Return the seconds of a pass's operations of these names; each is (name, milliseconds, ...)."""
    return round(sum(each[1] for each in operations if names.search(each[0])) / 1e3, 7)


def fit_decode_lines(batch: Floats, context: Floats, step_s: Floats) -> tuple[Floats, float]:
    """Return f, shape (B,), and g >= 0 of steps f[B] + g*B*x, by least squares of relative errors.

    batch, context : shape (B,) requests, shape (X,) tokens of each
    step_s : shape (B, X), seconds; NaN: not to be fitted
    """
    weight = np.nan_to_num(1 / step_s**2)
    seconds, cached = np.nan_to_num(step_s), batch[:, None] * context[None, :]
    total = weight.sum(axis=1)
    mean_s, mean_cached = ((weight * values).sum(axis=1) / total for values in (seconds, cached))
    off_s, off_cached = seconds - mean_s[:, None], cached - mean_cached[:, None]
    slope = (weight * off_s * off_cached).sum() / (weight * off_cached**2).sum()
    kv_token_s = max(float(slope), 0.0)
    return mean_s - kv_token_s * mean_cached, kv_token_s


def fit_context_token_s(chunk: Floats, earlier: Floats, later_s: Floats) -> float:
    """Return h >= 0 of passes that take h*c*x longer after a context, by least squares.

    `chunk`: shape (C,), tokens of a pass; `earlier`: shape (X,), context tokens; `later_s`: shape (C, X).
    """
    pairs = chunk[:, None] * earlier[None, :].astype(float)
    return max(float((later_s * pairs).sum() / (pairs**2).sum()), 0.0)
