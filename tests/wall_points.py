"""Measured runs of engines ("the wall"), and their replays: closed loops, stages of constant arrivals, logs.

A closed loop of C clients, of which each sends its next request when the last one has ended, is replayed as
an engine with C seats and a full queue: the next request begins when one ends. Its TTFT counts from there.
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.latency.aiconfigurator_package import EngineQuery, installed_package
from fleetcast.models.latency.aiconfigurator_profiles import profile_of_query
from fleetcast.models.latency.model_configs import read_model_config
from fleetcast.models.metrics import tpot_s
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.trials.capacity import trial_fleet, trial_rules
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile, Llm
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment

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
DENSE = ("Qwen3-32B", "Llama-3.1-70B", "Llama-3.1-8B")
BUDGET = 8192  # prompt tokens of a step: the default of these engines on such GPUs
WAVES, MOST_REQUESTS = 5, 4000  # requests of a closed loop: so many a client, and at most so many
LENGTH_SHARE = 1.0  # lengths are drawn between this share and the whole of the nominal one
GPUS_OF_SERVER = 8
HARD = Llm(1.0, 1, 64, 1, 1, "sizes do not matter: memory is taken to hold every request")


class ClosedLoop(NamedTuple):
    """A run of C clients with requests of one size, on one instance."""

    clients: int
    input_tokens: int
    output_tokens: int


def silicon_runs() -> pd.DataFrame:
    """Return the aggregated runs without data-parallel attention of one llm each, with their measured times.

    Columns: llm, precision, system, backend, tp, ep, clients, isl, osl, ttft_s, tpot_s, is_dense.
    """
    rows = pd.read_csv(SILICON)
    rows = rows[(rows["mode"] == "agg") & ~(rows["attention_dp_size"] > 1)]
    llm = rows["model_path"].str.split("/").str[-1].str.replace(r"-Instruct|-NVFP4", "", regex=True)
    llm = llm.replace({"Qwen3-32B-FP8": "Qwen3-32B", "Llama-3.1-8B-FP8": "Llama-3.1-8B", "DeepSeek-V3.1": "DeepSeek-V3"})
    precision = rows["precision"].fillna("bf16").where(llm != "gpt-oss-120b", "fp4")
    clients = rows["silicon_data_source"].str.extract(r"silicon_concurrency=(\d+)")[0].astype(float)
    found = pd.DataFrame(
        {
            "llm": llm,
            "precision": precision,
            "system": rows["system"],
            "backend": rows["backend"],
            "tp": rows["tp_size"].astype(int),
            "ep": np.maximum(rows["moe_ep_size"].fillna(1), 1).astype(int),
            "clients": clients.fillna(rows["batch_size"]).astype(int),
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
    return found[is_clear & is_whole].reset_index(drop=True)


def silicon_profile(run: tuple) -> LatencyProfile:
    """Return the profile of a run's llm, precision, system, backend, tp and ep, by aiconfigurator-core."""
    llm, precision, system, backend, tp, ep = run
    name, gemm_bits, expert_bits = CONFIGS[llm, precision]
    version, shipped = installed_package()
    config, quantisation = read_model_config(name, shipped, llm)
    query = EngineQuery(
        config, quantisation, gemm_bits, llm not in DENSE, system, backend, tp, version, expert_bits, ep
    )
    return profile_of_query(query, LLM, GPU, tp)


@cache
def replay_setting() -> tuple[Catalogue, RunConfig]:
    """Return the catalogue with an llm for which memory never lacks, and the default config."""
    catalogue = load_catalogue()
    return dataclasses.replace(catalogue, llms={LLM: HARD}), load_config("office", catalogue)


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


def draw_lengths(tokens: int, count: int, seed: int, share: float = LENGTH_SHARE) -> Ints:
    """Return lengths drawn evenly between a share of the nominal length and all of it, shape (count,)."""
    rng = np.random.default_rng(seed)
    return rng.integers(max(1, int(share * tokens)), tokens + 1, count).astype(np.int32)


def play_closed_loop(
    loop: ClosedLoop, profile: LatencyProfile, waves: int = WAVES, share: float = LENGTH_SHARE
) -> tuple[float, float]:
    """Return the median TTFT and TPOT of a closed loop, seconds."""
    c = loop.clients
    count = max(2 * c, min(waves * c, MOST_REQUESTS), 6)
    zeros = np.zeros(count, np.int16)
    inputs, outputs = (draw_lengths(n, count, 7 + n, share) for n in loop[1:])
    trace = TraceArrays(np.zeros(count), zeros, zeros, zeros, inputs, outputs)
    room = 2 * c * (loop.input_tokens + loop.output_tokens + 64)
    deployment = Deployment(
        GPU,
        profile.tensor_parallel,
        batching="chunked",
        max_batch=c,
        max_prefill_tokens=max(BUDGET, c + 1),
        async_scheduling=True,
        kv_tokens=room,
    )
    first_s, end_s = play(trace, profile, deployment, 1e6)
    begin_s = np.concatenate([np.zeros(c), np.sort(end_s)[: count - c]])
    ttft_s = first_s - begin_s
    return float(np.median(ttft_s)), float(np.median(tpot_s(ttft_s, end_s - begin_s, outputs)))
