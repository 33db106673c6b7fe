"""Measured runs of engines ("the wall"), and their replays: closed loops, stages of constant arrivals, logs.

A closed loop of C clients, of which each sends its next request when the last one has ended, is replayed as
an engine with C seats and a full queue: the next request begins when one ends. Its TTFT counts from there.
"""

import dataclasses
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.aiconfigurator_package import EngineQuery, installed_version
from fleetcast.models.latency.aiconfigurator_profiles import profile_of_query
from fleetcast.models.latency.engine_correction import correct_profile, limit_decode
from fleetcast.models.latency.model_configs import written_config
from fleetcast.models.metrics import tpot_s
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.trials.capacity import trial_fleet, trial_rules
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import Efficiency, LatencyProfile, Llm
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.model_rows import sizes_of_model
from fleetcast.models.world.shipped_models import read_model_config
from fleetcast.models.world.toml_dataclasses import ConfigError

SHARED = Path(__file__).parents[2] / "shared" / "data"
SILICON = SHARED / "profiles" / "aiconfigurator_silicon_sample.csv.gz"
STAGES = SHARED / "wall" / "vllm_h100_stages.csv"
LLM, GPU = "measured", "h100-80gb"  # names under which a profile is replayed, whatever it was measured on
CONFIGS = {  # of a measured llm by precision: shipped config, quantisation of products and of experts
    ("MiniMax-M2.5", "fp8"): ("MiniMaxAI/MiniMax-M2.5", "", ""),
    ("MiniMax-M2.5", "fp4"): ("nvidia/MiniMax-M2.5-NVFP4", "", ""),
    ("Qwen3-235B-A22B-FP8", "fp8"): ("Qwen/Qwen3-235B-A22B-FP8", "", ""),
    ("Qwen3-32B", "bf16"): ("Qwen/Qwen3-32B", "", ""),
    ("Qwen3-32B", "fp8"): ("Qwen/Qwen3-32B", "fp8", ""),
    ("Qwen3-32B", "fp4"): ("Qwen/Qwen3-32B", "nvfp4", ""),
    ("Qwen3.5-397B-A17B", "bf16"): ("Qwen/Qwen3.5-397B-A17B", "", ""),
    ("Qwen3.5-397B-A17B", "fp8"): ("Qwen/Qwen3.5-397B-A17B", "fp8_block", "fp8_block"),
    ("Qwen3.5-397B-A17B", "fp4"): ("nvidia/Qwen3.5-397B-A17B-NVFP4", "", ""),
    ("DeepSeek-R1", "fp8"): ("deepseek-ai/DeepSeek-R1", "", ""),
    ("DeepSeek-R1", "fp4"): ("nvidia/DeepSeek-V3.1-NVFP4", "", ""),
    ("DeepSeek-V3", "fp8"): ("deepseek-ai/DeepSeek-V3", "", ""),
    ("DeepSeek-V3", "fp4"): ("nvidia/DeepSeek-V3.1-NVFP4", "", ""),
    ("Llama-3.1-70B", "fp8"): ("nvidia/Llama-3.1-70B-Instruct-FP8", "", ""),
    ("Llama-3.1-70B", "fp4"): ("meta-llama/Meta-Llama-3.1-70B", "nvfp4", ""),
    ("Llama-3.1-8B", "bf16"): ("meta-llama/Meta-Llama-3.1-8B", "", ""),
    ("Llama-3.1-8B", "fp8"): ("meta-llama/Meta-Llama-3.1-8B", "fp8", ""),
    ("Kimi-K2.5", "int4"): ("moonshotai/Kimi-K2.5", "", ""),
    ("Kimi-K2.5", "fp4"): ("nvidia/Kimi-K2.5-NVFP4", "", ""),
    ("gpt-oss-120b", "fp4"): ("openai/gpt-oss-120b", "", ""),
    ("GLM-5", "fp8"): ("zai-org/GLM-5-FP8", "", ""),
    ("GLM-5", "fp4"): ("nvidia/GLM-5-NVFP4", "", ""),
}
PARAMETERS_B = {  # of the measured llms, for the memory that their weights take
    "MiniMax-M2.5": 228.7,
    "Qwen3-235B-A22B-FP8": 235.1,
    "Qwen3-32B": 32.8,
    "Qwen3.5-397B-A17B": 397.0,
    "DeepSeek-R1": 671.0,
    "DeepSeek-V3": 671.0,
    "Llama-3.1-70B": 70.6,
    "Llama-3.1-8B": 8.03,
    "Kimi-K2.5": 1026.0,
    "gpt-oss-120b": 116.8,
    "GLM-5": 744.0,
}
BITS = {"bf16": 16, "fp8": 8, "fp4": 4.5, "int4": 4.5}  # of a weight, with its scales
MEMORY_GIB = {"h100_sxm": 80, "h200_sxm": 141, "b200_sxm": 180, "b300_sxm": 268, "gb200": 186, "gb300": 278}
MEMORY_SHARE = 0.9  # of a GPU, for weights and KV cache
DENSE = ("Qwen3-32B", "Llama-3.1-70B", "Llama-3.1-8B")
BUDGET = 8192  # prompt tokens of a step: the default of these engines on such GPUs
WAVES, MOST_REQUESTS = 5, 4000  # requests of a closed loop: so many a client, and at most so many
BLOCK_TOKENS = 64
GPUS_OF_SERVER = 8
WEIGHT_BITS = {"bf16": 16, "fp8": 8, "fp4": 4, "int4": 4}
Estimate = Callable[[Catalogue, str, str, int], LatencyProfile]  # compose_profile, roofline_profile
PLACEHOLDER = Llm(1.0, 1, 64, 1, 1, "each deployment says itself how many tokens it holds")


class ClosedLoop(NamedTuple):
    """A run of C clients with requests of one size, on one instance."""

    clients: int
    input_tokens: int
    output_tokens: int


def silicon_runs(backend: str | None = None, *, with_ranks: bool = False) -> pd.DataFrame:
    """Return the aggregated runs of one llm each with their measured times.

    `with_ranks`: those with data-parallel attention, else those without. Such a run counts its GPUs as tp,
    each of them a rank. Columns: llm, precision, system, backend, tp, ep, ranks, clients (of a rank), isl,
    osl, ttft_s, tpot_s, is_dense.
    """
    rows = pd.read_csv(SILICON)
    rows = rows[(rows["mode"] == "agg") & ((rows["attention_dp_size"] > 1) == with_ranks)]
    gpus, spread = rows["tp_size"].astype(int), rows["moe_ep_size"].fillna(1).clip(lower=1).astype(int)
    ranks = rows["attention_dp_size"].fillna(1).clip(lower=1).astype(int)
    llm = rows["model_path"].str.split("/").str[-1].str.replace(r"-Instruct|-NVFP4", "", regex=True)
    llm = llm.replace(
        {"Qwen3-32B-FP8": "Qwen3-32B", "Llama-3.1-8B-FP8": "Llama-3.1-8B", "DeepSeek-V3.1": "DeepSeek-V3"}
    )
    precision = rows["precision"].fillna("bf16").where(llm != "gpt-oss-120b", "fp4")
    clients = rows["silicon_data_source"].str.extract(r"silicon_concurrency=(\d+)")[0].astype(float)
    found = pd.DataFrame(
        {
            "llm": llm,
            "precision": precision,
            "system": rows["system"],
            "backend": rows["backend"],
            "tp": 1 if with_ranks else gpus,
            "ep": ranks if with_ranks else spread,
            "ranks": ranks,
            "clients": np.maximum(clients.fillna(rows["batch_size"]).astype(int) // ranks, 1),
            "isl": rows["isl"].astype(int),
            "osl": rows["osl"].astype(int),
            "ttft_s": rows["silicon_ttft_ms"] / 1e3,
            "tpot_s": rows["silicon_tpot_ms"] / 1e3,
            "is_dense": llm.isin(DENSE),
        }
    )
    # Where experts are spread over GPUs, the sample's tp of more than a server is a product of two degrees.
    is_clear = (found["ep"] == 1) | (found["tp"] <= GPUS_OF_SERVER)
    is_whole = found["tp"].isin((1, 2, 4, 8))
    is_chosen = (found["backend"] == backend) if backend else True
    return found[is_clear & is_whole & is_chosen].reset_index(drop=True)


def silicon_profile(run: tuple) -> LatencyProfile:
    """Return the profile of a run's llm, precision, system, backend, tp, ep, ranks by aiconfigurator-core."""
    llm, precision, system, backend, tp, ep, ranks = run
    name, gemm_bits, expert_bits = CONFIGS[llm, precision]
    version = installed_version()
    config, quantisation = read_model_config(name, llm)
    query = EngineQuery(
        config,
        quantisation,
        gemm_bits,
        llm not in DENSE,
        system,
        backend,
        tp,
        version,
        expert_bits,
        ep,
        ranks=ranks,
    )
    return profile_of_query(query, LLM, GPU, tp)


def run_llm(llm: str, precision: str) -> Llm:
    """Return the architecture of a run's llm from its config.json, with a cache of 16 bits."""
    sizes = sizes_of_model(CONFIGS[llm, precision][0], "the wall", llm)
    sizes |= {"weight_bits": WEIGHT_BITS[precision], "kv_bits": 16}
    return Llm(**sizes, source="its config.json")


def profile_of_llm(
    arch: Llm, system: str, tp: int, estimate: Estimate, catalogue: Catalogue
) -> LatencyProfile:
    """Return the profile of an architecture by another source than the package, under the replayed names."""
    gpu = next((name for name, entry in catalogue.gpus.items() if entry.system == system), None)
    if gpu is None:
        raise ConfigError(f"The catalogue has no GPU of the system {system}.")
    own = dataclasses.replace(catalogue, llms={LLM: arch})
    return dataclasses.replace(estimate(own, LLM, gpu, tp), gpu=GPU)


def limited(
    profile: LatencyProfile, arch: Llm, system: str, most: float, efficiency: Efficiency
) -> LatencyProfile:
    """Return a mixture's profile whose decode steps take at most `most` times those of a roofline."""
    catalogue = load_catalogue()
    gpu = next(entry for entry in catalogue.gpus.values() if entry.system == system)
    engine = dataclasses.replace(catalogue.engine, mixture_most_over_roofline=most)
    return limit_decode(
        dataclasses.replace(
            catalogue, llms={LLM: arch}, gpus={GPU: gpu}, engine=engine, efficiency=efficiency
        ),
        profile,
    )


@cache
def kv_room_tokens(llm: str, precision: str, system: str, tp: int, ranks: int = 1) -> int:
    """Return the KV tokens of 16 bits that fit on a rank; 0 if the weights alone do not."""
    text, _ = read_model_config(CONFIGS[llm, precision][0], llm)
    config = json.loads(text)
    shape = config.get("text_config") or config
    layers, heads = shape["num_hidden_layers"], shape["num_attention_heads"]
    if "kv_lora_rank" in shape:
        values = shape["kv_lora_rank"] + shape["qk_rope_head_dim"]  # on each GPU
    else:
        head_dim = shape.get("head_dim") or shape["hidden_size"] // heads
        values = 2 * max(1, shape["num_key_value_heads"] // tp) * head_dim
    weights = PARAMETERS_B[llm] * 1e9 * BITS[precision] / 8 / (tp * ranks)
    room = MEMORY_GIB[system] * 2**30 * MEMORY_SHARE - weights
    return max(0, int(room / (2 * layers * values)))


@cache
def replay_setting() -> tuple[Catalogue, RunConfig]:
    """Return the catalogue with one llm that stands for all, and the default config."""
    catalogue = load_catalogue()
    return dataclasses.replace(catalogue, llms={LLM: PLACEHOLDER}), load_config("sageserve", catalogue)


def play(
    trace: TraceArrays, profile: LatencyProfile, deployment: Deployment, until_s: float
) -> tuple[Floats, Floats]:
    """Replay a trace on one instance; return seconds of first and last tokens, shape (R,)."""
    catalogue, config = replay_setting()
    only = dataclasses.replace(catalogue, latency=(profile,))
    prefix = "given" if trace.cached_tokens.size else "none"
    config = dataclasses.replace(config, fleet=dataclasses.replace(config.fleet, prefix=prefix))
    fleet = trial_fleet(LLM, deployment, only, config, instances=1)
    rules = trial_rules(LLM, only, config)
    outcome = replay_trace(trace, fleet, Schedule([[1]], hour_s=until_s), rules, until_s)
    return outcome.first_token_s, outcome.finish_s


def play_closed_loop(
    loop: ClosedLoop, profile: LatencyProfile, kv_tokens: int, waves: int = WAVES
) -> tuple[float, float]:
    """Return the median TTFT and TPOT of a closed loop, seconds; NaN where no request fits."""
    c = loop.clients
    count = max(2 * c, min(waves * c, MOST_REQUESTS), 6)
    zeros = np.zeros(count, np.int16)
    inputs, outputs = (np.full(count, tokens, np.int32) for tokens in loop[1:])
    trace = TraceArrays(np.zeros(count), zeros, zeros, zeros, inputs, outputs)
    if kv_tokens < loop.input_tokens + loop.output_tokens + BLOCK_TOKENS:
        return np.nan, np.nan
    deployment = Deployment(
        GPU,
        profile.tensor_parallel,
        batching="chunked",
        max_batch=c,
        max_prefill_tokens=max(BUDGET, c + 1),
        async_scheduling=True,
        kv_tokens=kv_tokens,
    )
    first_s, end_s = play(trace, profile, deployment, 1e6)
    begin_s = np.concatenate([np.zeros(c), np.sort(end_s)[: count - c]])
    ttft_s = first_s - begin_s
    return float(np.median(ttft_s)), float(np.median(tpot_s(ttft_s, end_s - begin_s, outputs)))


class Stage(NamedTuple):
    """A stage of constant arrivals, measured on vLLM on H100."""

    llm: str
    tp: int
    requests_per_s: float
    requests: int
    distinct_prompts: int
    is_dense: bool
    input_tokens: Floats  # (R,) drawn from the published quantiles
    output_tokens: Floats
    measured_s: dict[str, float]  # medians of e2e and ttft


STAGE_LLMS = {  # layers, heads, KV heads, hidden, inner width, vocabulary; a name: a shipped config
    "llama-2-7b": (32, 32, 32, 4096, 11008, 32000),
    "llama-2-70b": (80, 64, 8, 8192, 28672, 32000),
    "codellama-34b": (48, 64, 8, 8192, 22016, 32000),
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
}
STAGE_PARAMETERS_B = {"llama-2-7b": 6.74, "llama-2-70b": 69.0, "codellama-34b": 33.7, "mixtral-8x7b": 46.7}
QUANTILES = {"min": 0.0, "p10": 0.1, "p25": 0.25, "median": 0.5, "p75": 0.75, "p90": 0.9} | {
    "p99": 0.99,
    "max": 1.0,
}
STAGE_KV_TOKENS = {
    "llama-2-7b": 110_000,
    "llama-2-70b": 450_000,
    "codellama-34b": 380_000,
    "mixtral-8x7b": 370_000,
}
STAGE_SEATS, STAGE_BUDGET, CACHE_BLOCK = 128, 2048, 16


def stages() -> list[Stage]:
    """Return the stages of vLLM on H100, with lengths drawn from their published quantiles."""
    found = []
    for row in pd.read_csv(STAGES).itertuples():
        llm = next(name for name in STAGE_LLMS if row.experiment.startswith(name))
        rng = np.random.default_rng(11)
        lengths = [
            np.interp(
                rng.random(row.requests),
                list(QUANTILES.values()),
                [getattr(row, f"{kind}_tokens_{name}") for name in QUANTILES],
            )
            for kind in ("prompt", "output")
        ]
        measured = {"e2e": row.request_latency_median_s, "ttft": row.time_to_first_token_median_s}
        found.append(
            Stage(llm, row.tp, row.requests_per_s, row.requests, row.distinct_prompts, "mixtral" not in llm,
                  *lengths, measured)
        )  # fmt: skip
    return found


def stage_llm(stage: Stage) -> Llm:
    """Return the architecture of a stage's llm."""
    shape = STAGE_LLMS[stage.llm]
    if isinstance(shape, str):
        return Llm(**sizes_of_model(shape, "the wall", stage.llm), source="its config.json")
    layers, heads, kv_heads, hidden, inner, words = shape
    return Llm(STAGE_PARAMETERS_B[stage.llm], layers, heads, kv_heads, hidden // heads, "model card",
               hidden=hidden, intermediate=inner, vocabulary=words)  # fmt: skip


def stage_profile(stage: Stage) -> LatencyProfile:
    """Return the profile of a stage's deployment, by aiconfigurator-core."""
    version = installed_version()
    shape = STAGE_LLMS[stage.llm]
    if isinstance(shape, str):
        config, quantisation = read_model_config(shape, stage.llm)
    else:
        config, quantisation = written_config(stage_llm(stage), stage.llm), ""
    query = EngineQuery(config, quantisation, "", not stage.is_dense, "h100_sxm", "vllm", stage.tp, version)
    return profile_of_query(query, LLM, GPU, stage.tp)


def play_stage(stage: Stage, profile: LatencyProfile) -> dict[str, float]:
    """Return the medians of e2e and ttft of a stage, seconds.

    The engine caches prefixes, and few prompts recur: all but their first arrivals are cached but for the
    last block.
    """
    inputs, outputs = (np.maximum(column, 1).astype(np.int32) for column in stage[6:8])
    arrival_s, zeros = np.arange(stage.requests) / stage.requests_per_s, np.zeros(stage.requests, np.int16)
    cached = (inputs - 1) // CACHE_BLOCK * CACHE_BLOCK
    cached[: stage.distinct_prompts] = 0
    trace = TraceArrays(
        arrival_s, zeros, zeros, zeros, inputs, outputs, cached_tokens=cached.astype(np.int32)
    )
    deployment = Deployment(
        GPU,
        stage.tp,
        batching="chunked",
        max_batch=STAGE_SEATS,
        max_prefill_tokens=STAGE_BUDGET,
        async_scheduling=True,
        kv_tokens=STAGE_KV_TOKENS[stage.llm],
    )
    first_s, end_s = play(trace, profile, deployment, float(arrival_s[-1]) + 600)
    return {"e2e": float(np.nanmedian(end_s - arrival_s)), "ttft": float(np.nanmedian(first_s - arrival_s))}


def corrected(profile: LatencyProfile, is_dense: bool, step_doubling_s: float) -> LatencyProfile:
    """Return a profile with the correction of NVLink servers, at this coefficient; a mixture's as it is."""
    if not is_dense:
        return profile
    catalogue, _ = replay_setting()
    engine = dataclasses.replace(catalogue.engine, step_doubling_s=step_doubling_s)
    world = dataclasses.replace(catalogue, engine=engine)
    within_s = np.zeros(len(profile.prefill_s)), np.zeros(len(profile.decode_s))
    return correct_profile(world, profile, within_s)


def replay_stages(
    step_s_of: Callable[[str], float] = lambda _: 0.0,
    profile_of: Callable[[Stage], LatencyProfile] = stage_profile,
) -> pd.DataFrame:
    """Return the stages with measured and replayed medians: columns as of silicon_runs, and *_replayed_s.

    `step_s_of`: step_doubling_s by llm. Without the stages of which `profile_of` has no profile.
    """
    rows = []
    for stage in stages():
        try:
            profile = corrected(profile_of(stage), stage.is_dense, step_s_of(stage.llm))
        except ConfigError:
            continue
        played, tokens = play_stage(stage, profile), float(np.median(stage.output_tokens))
        row = {"llm": stage.llm, "system": "h100_sxm", "backend": "vllm", "tp": stage.tp}
        row |= {"is_dense": stage.is_dense, "requests_per_s": stage.requests_per_s}
        for kind, times in (("", stage.measured_s), ("replayed_", played)):
            row |= {f"{name}_{kind}s": seconds for name, seconds in times.items()}
            row[f"tpot_{kind}s"] = (times["e2e"] - times["ttft"]) / tokens
        rows.append(row)
    return pd.DataFrame(rows)


def replay_silicon(
    runs: pd.DataFrame, profile_of: Callable[[tuple], LatencyProfile] = silicon_profile
) -> pd.DataFrame:
    """Return the closed loops that have a profile and fit, with replayed TTFT and TPOT, uncorrected."""
    profiles, found = dict[tuple, LatencyProfile | None](), list[tuple[float, float]]()
    played = dict[tuple, tuple[float, float]]()  # some runs were measured more than once
    for run in runs.itertuples():
        key = (run.llm, run.precision, run.system, run.backend, run.tp, run.ep, run.ranks)
        if key not in profiles:
            try:
                profiles[key] = profile_of(key)
            except ConfigError:
                profiles[key] = None
        profile = profiles[key]
        loop = ClosedLoop(run.clients, run.isl, run.osl)
        if (key, loop) not in played:
            room = kv_room_tokens(run.llm, run.precision, run.system, run.tp, run.ranks)
            played[key, loop] = (np.nan, np.nan) if profile is None else play_closed_loop(loop, profile, room)
        found.append(played[key, loop])
    ttft_s, tpot_replayed_s = np.array(found).T
    return runs.assign(ttft_replayed_s=ttft_s, tpot_replayed_s=tpot_replayed_s).dropna(
        subset=["tpot_replayed_s"]
    )


# --- the correction --------------------------------------------------------------------------------------

STEPS_S = np.arange(0.0, 2.01e-3, 0.05e-3)  # candidates of step_doubling_s


def fit_step_doubling(runs: pd.DataFrame) -> float:
    """Return step_doubling_s: the candidate with the least error of TPOT, mean over llms of their medians.

    A longer step takes longer for each token, so TPOT grows by it.
    """
    llm = runs["llm"].to_numpy()
    errors = [
        pd.Series(tpot_error(runs, np.full(len(runs), step_s))).groupby(llm).median().mean()
        for step_s in STEPS_S
    ]
    return float(STEPS_S[int(np.argmin(errors))])


def added_step_s(runs: pd.DataFrame, step_doubling_s: Floats) -> Floats:
    """Return the seconds that a correction by run, shape (runs,), adds to each TPOT, shape (runs,)."""
    return step_doubling_s * np.log2(runs["tp"].to_numpy())


def tpot_error(runs: pd.DataFrame, step_doubling_s: Floats) -> Floats:
    """Return |replayed / measured - 1| of TPOT with a correction by run, shape (runs,)."""
    replayed_s = runs["tpot_replayed_s"] + added_step_s(runs, step_doubling_s)
    return (replayed_s / runs["tpot_s"] - 1).abs().to_numpy()


def left_out_steps(runs: pd.DataFrame) -> pd.Series:
    """Return for each run step_doubling_s fitted without its llm."""
    return runs["llm"].map({llm: fit_step_doubling(runs[runs["llm"] != llm]) for llm in runs["llm"].unique()})


def left_out_front_s(stages: pd.DataFrame) -> pd.Series:
    """Return for each stage the seconds of the engine's front end, from the TTFT of the other llms."""
    lacking_s = stages["ttft_s"] - stages["ttft_replayed_s"]
    return stages["llm"].map(
        {llm: lacking_s[stages["llm"] != llm].median() for llm in stages["llm"].unique()}
    )
