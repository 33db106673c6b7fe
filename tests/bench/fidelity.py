"""How true it is: latency profiles and rooflines against measurements, the replay against closed forms."""

import measurements
import numpy as np
import pandas as pd
import theory
from grid_fit import held_out_errors
from measure import Figures, Skipped, Target
from one_endpoint import DECODE_S, KV_S, PREFILL_S_PER_TOKEN, a_fleet, a_trace, run
from roofline_fit import fit_efficiency, log_errors, take
from workloads import setting

from fleetcast.models.latency.profile_tables import least_kv_token_s

SETTINGS = "median error at settings left out of the fit"
ROOFLINE = "roofline, end to end, median error"
PARTS = ("prefill", "step", "e2e")
CATALOGUE, _ = setting()
PROFILES = [p for p in CATALOGUE.latency if p.source.startswith("measured")]
LLMS = ("Llama-3.1-8B", "Llama-3.1-70B", "Qwen3-32B", "Qwen3-235B-A22B", "MiniMax-M2.5", "gpt-oss-120b")
SERVED = {  # which of them the silicon sample has on which GPU
    "h100-80gb": LLMS,
    "h200-141gb": tuple(llm for llm in LLMS if llm != "Qwen3-32B"),
    "b200-180gb": ("Llama-3.1-70B", "MiniMax-M2.5", "gpt-oss-120b"),
}
ENGINES = ("TensorRT-LLM", "vLLM")
STATIC_GPUS = ("h100-80gb", "a100-40gb")


def key(*parts: object) -> str:
    """A key of data/bench.json."""
    return "_".join(("fidelity", *(str(part).lower().replace("-", "_").replace(".", "_") for part in parts)))


def profile_key(llm: str, gpu: str, tensor_parallel: int, part: str) -> str:
    """The key of one part of one profile's error."""
    return key(llm, gpu.split("-")[0], tensor_parallel, part)


TARGETS = {
    **{
        profile_key(p.llm, p.gpu, p.tensor_parallel, part): Target(
            "",
            f"{p.llm} on {p.tensor_parallel} x {p.gpu}, {part}: {SETTINGS}",
            at_most=0.05 if part == "e2e" else None,
        )
        for p in PROFILES
        for part in PARTS
    },
    key("roofline"): Target("", f"{ROOFLINE} over all rows"),
    key("roofline", "p90"): Target("", "the same, 90th percentile"),
    **{
        key("roofline", gpu, llm): Target("", f"{ROOFLINE}: {llm} on {gpu}")
        for gpu, llms in SERVED.items()
        for llm in llms
    },
    **{
        key("roofline", "without", name): Target("", f"{ROOFLINE}: {name}, which was left out of the fit")
        for name in (*LLMS, *SERVED)
    },
    **{
        key("static", what, gpu, engine): Target(
            "", f"{ROOFLINE}: {label}, {gpu}, {engine}; nothing was fitted to them"
        )
        for what, label in (("all", "7 dense llms on 1 to 4 GPUs"), ("llama_3_8b", "Llama-3-8B on 1 GPU"))
        for gpu in STATIC_GPUS
        for engine in ENGINES
    },
    **{
        key("wait", law): Target(
            "", f"mean wait at 59 % load, 400,000 requests, over that of {label} theory", 0.98, 1.02
        )
        for law, label in (("md1", "M/D/1"), ("mm1", "M/M/1"))
    },
    key("isolated"): Target(
        "", "isolated requests: largest relative difference from the closed form", at_most=1e-12
    ),
}

REQUESTS = 400_000


def require_profiles() -> None:
    """Skip where the shared measurements do not lie next to the project."""
    if not measurements.PROFILES.exists():
        raise Skipped("There are no measured profiles in ../shared/data/profiles. Put them there.")


def held_out() -> Figures:
    """The latency profiles at settings that were left out of their fit, one at a time."""
    require_profiles()
    figures: Figures = {}
    for p in PROFILES:
        floor_s = least_kv_token_s(CATALOGUE.llms[p.llm], CATALOGUE.gpus[p.gpu], p.tensor_parallel)
        medians = np.median(held_out_errors(measurements.splitwise_points(p), floor_s), axis=1)
        for part, error in zip(PARTS, medians, strict=True):
            figures[profile_key(p.llm, p.gpu, p.tensor_parallel, part)] = float(error)
    return figures


def roofline() -> Figures:
    """The roofline on the measurements that its coefficients were fitted to."""
    require_profiles()
    rows, closed = measurements.silicon(CATALOGUE)
    errors = pd.Series(np.abs(np.expm1(log_errors(closed, CATALOGUE.efficiency))))
    medians = errors.groupby([rows["gpu"], rows["llm"]]).median()
    return {
        key("roofline"): float(errors.median()),
        key("roofline", "p90"): float(errors.quantile(0.9)),
        **{key("roofline", gpu, llm): float(error) for (gpu, llm), error in medians.items()},
    }


def roofline_left_out() -> Figures:
    """The roofline on llms and GPUs that were left out of a fit to all others."""
    require_profiles()
    rows, closed = measurements.silicon(CATALOGUE)
    groups = (rows["llm"] + rows["gpu"]).to_numpy()
    figures: Figures = {}
    for column, names in (("llm", LLMS), ("gpu", tuple(SERVED))):
        for name in names:
            out = (rows[column] == name).to_numpy()
            fitted = fit_efficiency(take(closed, ~out), list(groups[~out]), f"all but {name}")
            errors = np.abs(np.expm1(log_errors(take(closed, out), fitted)))
            figures[key("roofline", "without", name)] = float(np.median(errors))
    return figures


def static_batches() -> Figures:
    """The roofline on whole batches that nothing was fitted to: other llms, engines of 2024, the A100."""
    require_profiles()
    rows, closed = measurements.static_batches(CATALOGUE)
    rows["error"] = np.abs(measurements.static_e2e_s(closed, CATALOGUE.efficiency) / closed.e2e_s - 1)
    alone = rows[(rows["llm"] == "Meta-Llama-3-8B") & (rows["tp_size"] == 1)]
    return {
        key("static", what, gpu, engine): float(
            part.query("gpu == @gpu and Framework == @engine")["error"].median()
        )
        for what, part in (("all", rows), ("llama_3_8b", alone))
        for gpu in STATIC_GPUS
        for engine in ENGINES
    }


def laws() -> Figures:
    """The replay against queueing theory and against what isolated requests must take."""
    rng = np.random.default_rng(3)
    rate, requests = 2.0, REQUESTS
    figures: Figures = {}
    for law, tokens in (
        ("md1", np.full(requests, 300)),
        ("mm1", rng.exponential(300, requests).astype(int) + 1),
    ):
        trace = a_trace(np.cumsum(rng.exponential(1 / rate, requests)), tokens, 1)
        service_s = tokens * PREFILL_S_PER_TOKEN
        wait_s = run(trace, a_fleet(1)).first_token_s - trace.arrival_s - service_s
        expected_s = theory.mean_wait_s(rate, service_s.mean(), np.square(service_s).mean())
        figures[key("wait", law)] = float(wait_s.mean() / expected_s)
    return {**figures, key("isolated"): isolated()}


def isolated() -> float:
    """The largest relative difference of TTFT or E2E from prefill and the sum of the steps."""
    rng = np.random.default_rng(5)
    inputs, outputs = rng.integers(1, 8192, 1000), rng.integers(1, 2048, 1000)
    trace = a_trace(1024.0 * np.arange(1000), inputs, outputs)
    outcome = run(trace, a_fleet(1, max_batch=8))
    steps = outputs - 1
    ttft_s = inputs * PREFILL_S_PER_TOKEN
    e2e_s = ttft_s + steps * (DECODE_S + KV_S * inputs) + KV_S * steps * (steps - 1) / 2
    met = (outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s)
    return max(float(np.max(np.abs(m / s - 1))) for m, s in zip(met, (ttft_s, e2e_s), strict=True))


SMOKE = {
    "held_out": {},
    "roofline": {},
    "roofline_left_out": {},
    "static_batches": {},
    "laws": {"REQUESTS": 20_000},
}
FUNCTIONS = (held_out, roofline, roofline_left_out, static_batches, laws)
