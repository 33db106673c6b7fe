"""Engine settings: how long the choice takes, and what it saves over exhaustive search and over defaults."""

import csv
import dataclasses
import functools
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import ROOT, Figures, Skipped, Target

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.studies.configure_answer import ConfigureQuery, choose_engine, nest_trials, with_targets
from fleetcast.assets.studies.configure_traffic import ConfigureTraffic, build_traffic_window
from fleetcast.assets.studies.try_fleet import read_file_requests
from fleetcast.models.configure.engine_points import (
    EngineMarket,
    EnginePoint,
    EngineSettings,
    EngineShape,
    list_kinds,
    list_settings,
    price_engines,
)
from fleetcast.models.configure.fleet_trials import TrafficWindow
from fleetcast.models.configure.point_search import FleetTrials, fewest_attaining, search_engines
from fleetcast.models.latency.batch_extension import extend_profile
from fleetcast.models.latency.profile_cache import answer_query
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

TRACES = ROOT.parent / "shared" / "data" / "traces"
CONVERSATION, CODE = ("AzureLLMInferenceTrace_conv.csv.gz", "AzureLLMInferenceTrace_code.csv.gz")
COPIES, SOME_COPIES = 52, 8  # of the hour, each shifted: 1,007,032 and 154,928 requests
GPUS = ("h100-80gb", "h200-141gb", "b200-180gb", "a100-80gb")
LLMS = ("llama3.1-8b", "qwen3-8b", "qwen3-32b", "llama3.1-70b", "qwen3-30b-a3b", "gpt-oss-120b")
# Defaults of vLLM's server: sequences and tokens of a step, on GPUs of 70 GiB and more but A100, and others.
LARGE_GPU, OTHER_GPU = (
    EngineSettings(1024, 8192, "none", "round_robin"),
    EngineSettings(256, 2048, "none", "round_robin"),
)
TPOT_SLO_S = 0.05
SMALL_SPACES = (("llama3.1-8b", "h100-80gb", "together"), ("qwen3-8b", "b200-180gb", "any"))

TARGETS = {
    "configure_seconds": Target("s", "llama 70B, 4 GPU types, 1 M requests of an hour, CPU", at_most=180.0),
    "configure_points": Target("", "the same, points considered", at_least=2000),
    "configure_replays": Target("", "the same, replays"),
    "configure_over_exhaustive": Target(
        "", "cost over exhaustive search, worst of two small spaces", at_most=1.0
    ),
    "configure_over_vllm_defaults": Target(
        "", "cost over vLLM's defaults on the best GPU, no fewer bits, median of 6 llms", at_most=0.75
    ),
    "configure_over_vllm_defaults_fp8": Target("", "the same, fp8 allowed"),
    "configure_over_vllm_defaults_small": Target("", "the same as the first, at 155,000 requests an hour"),
    "configure_over_aiconfigurator": Target(
        "", "cost over aiconfigurator's recommendation on its best GPU, median of 6 llms", at_most=0.85
    ),
    "configure_over_aiconfigurator_small": Target("", "the same, at 155,000 requests an hour"),
}


@functools.cache
def traffic_of(name: str, copies: int = 1) -> ConfigureTraffic:
    """An hour of Azure's traffic; copies of it are shifted around the hour, so that lengths stay real."""
    path = TRACES / name
    if not path.exists():
        raise Skipped(f"no {path}")
    catalogue = load_catalogue()
    with tempfile.TemporaryDirectory() as scratch:
        rows = read_file_requests(path, catalogue, Path(scratch), Progress()).rows
    window = build_traffic_window(rows, catalogue, load_config("office", catalogue), ("none",))
    if copies == 1:
        return ConfigureTraffic(name, [window], ("none",), "")
    trace, length_s = window.trace, window.until_s
    shifts_s = np.random.default_rng(1).uniform(0, length_s, copies)[:, None]
    arrival_s = ((trace.arrival_s[None] + shifts_s) % length_s).ravel()
    order = np.argsort(arrival_s, kind="stable")
    columns = {
        field: np.tile(getattr(trace, field), copies)[order]
        for field in ("region", "llm", "tier", "input_tokens", "output_tokens")
    }
    many = trace._replace(arrival_s=arrival_s[order] - arrival_s.min(), **columns)
    hour = TrafficWindow({"none": many})
    return ConfigureTraffic(f"{copies} x {name}", [hour], ("none",), "")


def speed() -> Figures:
    """CPU seconds of a choice for a million requests; profiles are computed, not read from disk."""
    traffic, begun_s = traffic_of(CONVERSATION, COPIES), time.process_time()
    answer_query.cache_clear()
    os.environ["FLEETCAST_PROFILE_CACHE"] = tempfile.mkdtemp()
    catalogue = load_catalogue()
    query = ConfigureQuery("llama3.1-70b", GPUS, "fp8")
    answer = choose_engine(
        query, traffic, with_targets(catalogue, query), load_config("office", catalogue), Progress()
    )
    best = answer.best
    print(
        f"{traffic.requests:,} requests: {best.point}, {best.counts}, {best.usd_per_million_tokens:.4f} USD/M"
    )
    return {
        "configure_seconds": time.process_time() - begun_s,
        "configure_points": answer.search.considered,
        "configure_replays": answer.search.replays,
    }


def exhaustive() -> Figures:
    """The cost of the choice over the least cost of all points of a small space, each searched alone."""
    ratios = []
    traffic = traffic_of(CODE)
    for llm, gpu, way in SMALL_SPACES:
        market, kinds = space_of(ConfigureQuery(llm, (gpu,), None, way, None, TPOT_SLO_S), traffic)
        kinds = kinds[:4]
        found = search_engines(*nest_trials(market, traffic.hours), kinds)
        trials = FleetTrials(market, traffic.hours)
        scores = [fewest_attaining(trials, p) for kind in kinds for p in list_settings(kind)]
        least = min(score.usd_per_hour for score in scores if score is not None)
        assert found is not None
        ratios.append(found.finalists[0].usd_per_hour / least)
    return {"configure_over_exhaustive": max(ratios)}


def space_of(query: ConfigureQuery, traffic: ConfigureTraffic) -> tuple[EngineMarket, list[EnginePoint]]:
    """The market and the kinds of points of a query."""
    catalogue = load_catalogue()
    market = price_engines(
        with_targets(catalogue, query), query.llm, query.gpus, query.floor, load_config("office", catalogue),
        traffic.longest,
    )  # fmt: skip
    return market, list_kinds(market, traffic.longest, traffic.prefixes, query.way)


def over_defaults() -> Figures:
    """The cost of the choice over vLLM's defaults, at the same tiers and a TPOT target, for several llms.

    At the small load most fleets are of one or two instances, so that whole instances hide what settings do.
    """
    narrow = [llm for llm in LLMS if load_catalogue().llms[llm].weight_bits < 8]
    ratios = {llm: cost_over_defaults(llm, None, COPIES) for llm in LLMS}
    fp8 = [ratios[llm] if llm in narrow else cost_over_defaults(llm, "fp8", COPIES) for llm in LLMS]
    small = [cost_over_defaults(llm, None, SOME_COPIES) for llm in LLMS]
    return {
        "configure_over_vllm_defaults": float(np.median([*ratios.values()])),
        "configure_over_vllm_defaults_fp8": float(np.median(fp8)),
        "configure_over_vllm_defaults_small": float(np.median(small)),
    }


def cost_over_defaults(llm: str, floor: str | None, copies: int) -> float:
    """The cost of the choice for a model over that of vLLM's defaults with all its bits."""
    query = ConfigureQuery(llm, GPUS, None, "any", None, TPOT_SLO_S)
    ratio = chosen_usd_per_hour(llm, floor, copies) / least_default(query, traffic_of(CONVERSATION, copies))
    print(llm, floor, copies, round(ratio, 3), "of vLLM's defaults", flush=True)
    return ratio


@functools.cache
def chosen_usd_per_hour(llm: str, floor: str | None, copies: int) -> float:
    """USD per hour of the choice for a model, for so many copies of the hour of conversations."""
    query, catalogue = ConfigureQuery(llm, GPUS, floor, "any", None, TPOT_SLO_S), load_catalogue()
    config = load_config("office", catalogue)
    best = choose_engine(
        query, traffic_of(CONVERSATION, copies), with_targets(catalogue, query), config, Progress()
    ).best
    print(llm, floor, copies, best.point, best.counts, flush=True)
    return best.usd_per_hour


def over_aiconfigurator() -> Figures:
    """The cost of the choice over aiconfigurator's own engine on its best GPU type, for the same traffic.

    Its query has the mean lengths and the same targets. It gets the fewest instances that attain them in
    the replay.
    """
    tool = os.environ.get("AICONFIGURATOR")
    if not tool:
        raise Skipped("AICONFIGURATOR is not set: the path of its command, of a Python with that package")
    loads = {"": COPIES, "_small": SOME_COPIES}
    ratios: dict[str, list[float]] = {load: [] for load in loads}
    for llm in LLMS:
        query, hour = ConfigureQuery(llm, GPUS, None, "together", None, TPOT_SLO_S), traffic_of(CONVERSATION)
        market, kinds = space_of(query, hour)
        points = [point for gpu in GPUS for point in recommended_points(tool, llm, gpu, kinds, hour)]
        for load, copies in loads.items():
            theirs = least_usd_per_hour(market, traffic_of(CONVERSATION, copies), points)
            ratios[load].append(chosen_usd_per_hour(llm, None, copies) / theirs)
            print(llm, copies, round(ratios[load][-1], 3), "of aiconfigurator's", points, flush=True)
    return {f"configure_over_aiconfigurator{load}": float(np.median(of)) for load, of in ratios.items()}


def recommended_points(
    tool: str, llm: str, gpu: str, kinds: list[EnginePoint], traffic: ConfigureTraffic
) -> list[EnginePoint]:
    """What aiconfigurator recommends on a GPU type, in two readings: with the sequences of its engine
    arguments, and with the concurrency that it found. Empty where it knows no engine.
    """
    trace, tier = traffic.hours[0].trace, load_catalogue().tiers["iw_fast"]
    with tempfile.TemporaryDirectory() as folder:
        query = {
            "model-path": load_catalogue().llms[llm].model, "system": f"{gpu.split('-')[0]}_sxm",
            "backend": "vllm", "serving-mode": "agg", "total-gpus": "8", "top-n": "1", "save-dir": folder,
            "isl": str(round(trace.input_tokens.mean())), "osl": str(round(trace.output_tokens.mean())),
            "ttft": f"{1e3 * tier.ttft_slo_s:.0f}", "tpot": f"{1e3 * TPOT_SLO_S:.0f}",
        }  # fmt: skip
        arguments = [part for name, value in query.items() for part in (f"--{name}", value)]
        subprocess.run([tool, "cli", "default", *arguments], capture_output=True, check=False)
        best = next(Path(folder).rglob("best_config_topn.csv"), None)
        if best is None:
            return []
        row = next(csv.DictReader(best.open()))
        engine = next(Path(folder).rglob("run_0.sh")).read_text()
    shape = EngineShape(gpu, int(row["tp"]), int(row["pp"]))
    fits = [k for k in kinds if k.shape == shape and k.variant.kv_bits == 16 and k.decode is None]
    fits = [k for k in fits if k.variant.is_expert_parallel == (int(row["moe_ep"]) > 1)]
    sequences, tokens = (
        int(re.search(rf'--{name} "?(\d+)', engine)[1]) for name in ("max-num-seqs", "max-num-batched-tokens")
    )
    settings = (EngineSettings(count, tokens, "none", "round_robin") for count in (sequences, int(row["bs"])))
    return [fits[0]._replace(settings=one) for one in settings if fits]


def least_default(query: ConfigureQuery, traffic: ConfigureTraffic) -> float:
    """USD per hour of vLLM's defaults on the best GPU type: the fewest GPUs that hold the llm, whole."""
    market, kinds = space_of(query._replace(way="together"), traffic)
    points = []
    for gpu in query.gpus:
        of_gpu = [k for k in kinds if k.shape.gpu == gpu and k.shape.pipeline_parallel == 1]
        of_gpu = [k for k in of_gpu if not k.variant.is_expert_parallel and k.variant.kv_bits == 16]
        if of_gpu:
            settings = OTHER_GPU if gpu.startswith("a100") else LARGE_GPU
            points.append(min(of_gpu, key=lambda k: k.shape.gpus)._replace(settings=settings))
    return least_usd_per_hour(market, traffic, points)


def least_usd_per_hour(market: EngineMarket, traffic: ConfigureTraffic, points: list[EnginePoint]) -> float:
    """USD per hour of the cheapest of some points, each with the fewest instances that attain every tier."""
    extended = {
        variant: dataclasses.replace(
            catalogue,
            latency=tuple(extend_profile(catalogue, p, LARGE_GPU.max_batch) for p in catalogue.latency),
        )
        for variant, catalogue in market.catalogues.items()
    }
    trials = FleetTrials(market._replace(catalogues=extended), traffic.hours)
    scores = [fewest_attaining(trials, point) for point in points]
    return min((score.usd_per_hour for score in scores if score is not None), default=float("inf"))


FUNCTIONS = (speed, exhaustive, over_defaults, over_aiconfigurator)
SMOKE = {"exhaustive": {"SMALL_SPACES": SMALL_SPACES[:1]}}
