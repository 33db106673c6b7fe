"""Engine settings: how long the choice takes, and what it saves over exhaustive search and over defaults."""

import csv
import functools
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from measure import ROOT, Figures, Skipped, Target

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.studies.configure_answer import ConfigureQuery, choose_engine, nest_trials, with_targets
from fleetcast.assets.studies.configure_traffic import ConfigureTraffic, build_traffic_window
from fleetcast.assets.studies.try_fleet import read_file_requests
from fleetcast.models.configure.engine_points import (
    BATCHES,
    TOKEN_BUDGETS,
    EngineMarket,
    EnginePoint,
    EngineSettings,
    EngineShape,
    list_kinds,
    list_settings,
    price_engines,
)
from fleetcast.models.configure.fleet_trials import FleetScore, TrafficWindow
from fleetcast.models.configure.point_search import (
    BEST_KINDS,
    FleetTrials,
    race_points,
    search_engines,
)
from fleetcast.models.configure.vllm_defaults import default_points, with_default_batches
from fleetcast.models.latency.profile_cache import answer_query
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

TRACES = ROOT.parent / "shared" / "data" / "traces"
CONVERSATION = "AzureLLMInferenceTrace_conv.csv.gz"
COPIES, SOME_COPIES = 52, 8  # of the hour, each shifted: 1,007,032 and 154,928 requests
GPUS = ("h100-80gb", "h200-141gb", "b200-180gb", "a100-80gb")
LLMS = ("llama3.1-8b", "qwen3-8b", "qwen3-32b", "llama3.1-70b", "qwen3-30b-a3b", "gpt-oss-120b")
WAYS_OF_TOOL = ("agg", "disagg")  # aiconfigurator's --serving-mode
TPOT_SLO_S = 0.05
RANKS_LLM, RANKS_GPU, RANKS_TPOT_SLO_S = "deepseek-v3", "h200-141gb", 0.1
RANKS_COPIES, RANKS_SHIFT_S = 15, 60.0  # of each request, moved by up to so many seconds: 290,490 requests
ENGINES_OF_EIGHT = {  # shape, and whether experts are whole
    "eight_ranks": (EngineShape(RANKS_GPU, 1, 1, 8), True),
    "whole_experts": (EngineShape(RANKS_GPU, 8), True),
    "split_experts": (EngineShape(RANKS_GPU, 8), False),
}
MOST_INSTANCES = 16  # of a shape, in the exhaustive search
# llm, GPU type, floor, way, and every so many of its kinds: more kinds than reach the second stage.
SMALL_SPACES = (
    ("llama3.1-8b", "h100-80gb", "fp8", "together", 3),
    ("qwen3-8b", "b200-180gb", None, "any", 2),
)

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
    "configure_steady_over_vllm_defaults": Target(
        "", "steady work of the cheapest deployment over vLLM's defaults, no fewer bits, median of 6 llms"
    ),
    "configure_vllm_defaults_nowhere": Target(
        "", "comparisons of 18 left out: the defaults attain nowhere", at_most=0
    ),
    "configure_over_aiconfigurator": Target(
        "", "cost over aiconfigurator's recommendation on its best GPU, median of 6 llms", at_most=0.85
    ),
    "configure_over_aiconfigurator_small": Target("", "the same, at 155,000 requests an hour"),
    "configure_chosen_ranks": Target("", "deepseek-v3 on H200, 15 times the hour: ranks of the choice"),
    "configure_chosen_gpus": Target("", "the same, its GPUs"),
    "configure_ranks_gpus": Target("", "the same, GPUs of the best fleet with ranks"),
    "configure_eight_ranks_tpot_p50_s": Target("s", "8 ranks of an H200 on the hour itself, median TPOT"),
    "configure_eight_ranks_attained": Target("share", "the same, attainment"),
    "configure_whole_experts_tpot_p50_s": Target("s", "tensor_parallel 8, whole experts: median TPOT"),
    "configure_whole_experts_attained": Target("share", "the same, attainment"),
    "configure_split_experts_tpot_p50_s": Target("s", "tensor_parallel 8, experts split: median TPOT"),
    "configure_split_experts_attained": Target("share", "the same, attainment"),
    "configure_aiconfigurator_no_point": Target("", "recommendations of 48 that the replay has no point for"),
    "configure_aiconfigurator_nowhere": Target("", "comparisons of 12 left out: no recommendation attains"),
}


@functools.cache
def traffic_of(name: str, copies: int = 1, most_shift_s: float | None = None) -> ConfigureTraffic:
    """An hour of Azure's traffic; copies of it are shifted around the hour, so that lengths stay real.

    `most_shift_s`: each request is shifted by itself, by up to so many seconds; None: each copy as a whole.
    """
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
    size = (copies, 1 if most_shift_s is None else trace.arrival_s.size)
    shifts_s = np.random.default_rng(1).uniform(0, most_shift_s or length_s, size)
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
    """The cost of the choice over the least cost of all points of a small space, each with every count."""
    ratios = []
    traffic = traffic_of(CONVERSATION, SOME_COPIES)
    for llm, gpu, floor, way, every in SMALL_SPACES:
        market, kinds = space_of(ConfigureQuery(llm, (gpu,), floor, way, None, TPOT_SLO_S), traffic)
        kinds, stages = kinds[::every], nest_trials(market, traffic.hours)
        assert len(kinds) > BEST_KINDS
        assert len({id(trials) for trials in stages}) == len(stages)
        least = least_of_all_counts(FleetTrials(market, traffic.hours), kinds)
        ratios.append(best_fleet(stages, kinds).usd_per_hour / least)
        print(llm, gpu, len(kinds), "kinds", round(ratios[-1], 3), "of the least cost", least, flush=True)
    return {"configure_over_exhaustive": max(ratios)}


def best_fleet(stages: Sequence[FleetTrials], kinds: Sequence[EnginePoint]) -> FleetScore:
    """The best fleet of these kinds of points; AssertionError where none attains."""
    found = search_engines(*stages, kinds)
    assert found is not None
    return found.finalists[0]


def least_of_all_counts(trials: FleetTrials, kinds: list[EnginePoint]) -> float:
    """USD per hour of the cheapest fleet that attains, by every count from one up, without bound or guess."""
    least = float("inf")
    for point in (point for kind in kinds for point in list_settings(kind)):
        catalogue, most = trials.market.catalogue_of(point), MOST_INSTANCES
        counts = product(*(range(1, most + 1) for _ in point.shapes))
        for usd, count in sorted((point.usd_per_hour(catalogue, count), count) for count in counts):
            if usd >= least:
                break
            if trials.score(point, count).is_attained:
                least = usd
    return least


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
    Engines that are always busy with the work of all requests show how little settings can save.
    """
    narrow = [llm for llm in LLMS if load_catalogue().llms[llm].weight_bits < 8]
    ratios = {llm: cost_over_defaults(llm, None, COPIES) for llm in LLMS}
    fp8 = [ratios[llm] if llm in narrow else cost_over_defaults(llm, "fp8", COPIES) for llm in LLMS]
    small = [cost_over_defaults(llm, None, SOME_COPIES) for llm in LLMS]
    every = [*ratios.values(), *fp8, *small]
    return {
        "configure_over_vllm_defaults": median_compared([*ratios.values()]),
        "configure_over_vllm_defaults_fp8": median_compared(fp8),
        "configure_over_vllm_defaults_small": median_compared(small),
        "configure_steady_over_vllm_defaults": median_compared([steady_over_defaults(llm) for llm in LLMS]),
        "configure_vllm_defaults_nowhere": sum(ratio is None for ratio in every),
    }


def median_compared(ratios: list[float | None]) -> float:
    """The median of the ratios that there are; RuntimeError without one."""
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        raise RuntimeError("nothing to compare with attains its targets, with no llm")
    return float(np.median(known))


def cost_over_defaults(llm: str, floor: str | None, copies: int) -> float | None:
    """The cost of the choice for a model over that of vLLM's defaults with all its bits; None: nowhere."""
    theirs = default_usd_per_hour(llm, copies)
    ratio = None if theirs is None else chosen_usd_per_hour(llm, floor, copies) / theirs
    print(llm, floor, copies, ratio, "of vLLM's defaults", theirs, flush=True)
    return ratio


def steady_over_defaults(llm: str) -> float | None:
    """The least cost of engines that are always busy over that of vLLM's defaults, both with all bits."""
    theirs, traffic = default_usd_per_hour(llm, COPIES), traffic_of(CONVERSATION, COPIES)
    market, kinds = space_of(ConfigureQuery(llm, GPUS, None, "any", None, TPOT_SLO_S), traffic)
    trials = FleetTrials(market, traffic.hours)
    most = {"max_batch": BATCHES[-1], "token_budget": TOKEN_BUDGETS[-1]}
    points = [kind._replace(settings=kind.settings._replace(**most)) for kind in kinds]
    ratio = None if theirs is None else min(map(trials.steady_usd, points)) / theirs
    print(llm, ratio, "of vLLM's defaults are steady work", flush=True)
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


def ranks() -> Figures:
    """Data-parallel ranks of a mixture of experts where many requests come, and on the hour itself.

    The search is that of `fleetcast configure --colocated`: among all fleets, and among those with ranks. On
    the hour there is one instance of eight GPUs, with the settings with which kinds of fleets are compared.
    """
    crowded = traffic_of(CONVERSATION, RANKS_COPIES, RANKS_SHIFT_S)
    query = ConfigureQuery(RANKS_LLM, (RANKS_GPU,), None, "together", None, RANKS_TPOT_SLO_S)
    market, kinds = space_of(query, crowded)
    stages, hour = nest_trials(market, crowded.hours), FleetTrials(market, traffic_of(CONVERSATION).hours)
    with_ranks = [kind for kind in kinds if kind.shape.data_parallel_size > 1]
    chosen, of_ranks = (best_fleet(stages, some) for some in (kinds, with_ranks))
    alone = {
        name: hour.score(next(k for k in kinds if (k.shape, k.variant.is_expert_parallel) == engine), (1,))
        for name, engine in ENGINES_OF_EIGHT.items()
    }
    for score in (chosen, of_ranks, *alone.values()):
        print(score.point, score.counts, score.attained, score.seconds, flush=True)
    return {
        "configure_chosen_ranks": chosen.point.shape.data_parallel_size,
        "configure_chosen_gpus": chosen.counts[0] * chosen.point.shape.gpus,
        "configure_ranks_gpus": of_ranks.counts[0] * of_ranks.point.shape.gpus,
        **{f"configure_{name}_tpot_p50_s": score.seconds["tpot_p50_s"] for name, score in alone.items()},
        **{f"configure_{name}_attained": min(score.attained.values()) for name, score in alone.items()},
    }


def over_aiconfigurator() -> Figures:
    """The cost of the choice over aiconfigurator's own engine on its best GPU type, for the same traffic.

    Its query has the mean lengths and the same targets, once with prefill and decode together and once apart.
    It gets the fewest instances that attain them in the replay.
    """
    tool = os.environ.get("AICONFIGURATOR")
    if not tool:
        raise Skipped(
            "AICONFIGURATOR is not set: the path of its command, in a Python of its own with "
            "aiconfigurator==0.12.0 (pip install)"
        )
    loads = {"": COPIES, "_small": SOME_COPIES}
    ratios: dict[str, list[float | None]] = {load: [] for load in loads}
    without = 0
    for llm in LLMS:
        hour = traffic_of(CONVERSATION)
        market, kinds = space_of(ConfigureQuery(llm, GPUS, None, "any", None, TPOT_SLO_S), hour)
        advised = [
            recommended_points(tool, llm, gpu, way, kinds, hour) for gpu in GPUS for way in WAYS_OF_TOOL
        ]
        without += sum(not points for points in advised)
        points = [point for some in advised for point in some]
        for load, copies in loads.items():
            theirs = least_usd_per_hour(market, traffic_of(CONVERSATION, copies), points)
            ratio = None if theirs is None else chosen_usd_per_hour(llm, None, copies) / theirs
            ratios[load].append(ratio)
            print(llm, copies, ratio, "of aiconfigurator's", theirs, flush=True)
    figures = {f"configure_over_aiconfigurator{load}": median_compared(of) for load, of in ratios.items()}
    nowhere = sum(ratio is None for of in ratios.values() for ratio in of)
    return figures | {
        "configure_aiconfigurator_no_point": without,
        "configure_aiconfigurator_nowhere": nowhere,
    }


def recommended_points(
    tool: str, llm: str, gpu: str, way: str, kinds: list[EnginePoint], traffic: ConfigureTraffic
) -> list[EnginePoint]:
    """What aiconfigurator recommends on a GPU type, in two readings: with the sequences of its engine
    arguments, and with the concurrency that it found. Empty where it knows no engine, or one that the replay
    has no point for. Apart, both phases get the sequences of its decode and the tokens of its prefill engine.
    """
    answer = run_aiconfigurator(tool, llm, gpu, way, traffic)
    if answer is None:
        print(llm, gpu, way, "no point: aiconfigurator knows no engine", flush=True)
        return []
    row, engine = answer
    roles = ("",) if way == "agg" else ("(p)", "(d)")
    shapes = [EngineShape(gpu, int(row[f"{role}tp"]), int(row[f"{role}pp"])) for role in roles]
    copies = [int(row[f"{role}dp"]) for role in roles]
    spreads = [int(row[f"{role}moe_ep"]) > 1 for role in roles]
    fits = [k for k in kinds if list(k.shapes) == shapes and k.variant.kv_bits == 16]
    fits = [k for k in fits if [k.variant.is_expert_parallel] * len(roles) == spreads]
    if max(copies) > 1 or not fits:
        print(llm, gpu, way, f"no point: {shapes}, attention dp {copies}, experts {spreads}", flush=True)
        return []
    sequences = re.findall(r'--max-num-seqs "?(\d+)', engine)[-1]
    tokens = re.search(r'--max-num-batched-tokens "?(\d+)', engine)[1]
    batches = (int(sequences), int(row[f"{roles[-1]}bs"]))
    return [
        fits[0]._replace(settings=EngineSettings(batch, max(batch, int(tokens)), "none", "round_robin"))
        for batch in batches
    ]


def run_aiconfigurator(
    tool: str, llm: str, gpu: str, way: str, traffic: ConfigureTraffic
) -> tuple[dict[str, str], str] | None:
    """Its best row and the script that starts it; None without a row. RuntimeError where it fails."""
    trace, tier = traffic.hours[0].trace, load_catalogue().tiers["iw_fast"]
    with tempfile.TemporaryDirectory() as folder:
        query = {
            "model-path": load_catalogue().llms[llm].model, "system": f"{gpu.split('-')[0]}_sxm",
            "backend": "vllm", "serving-mode": way, "total-gpus": "8", "top-n": "1", "save-dir": folder,
            "isl": str(round(trace.input_tokens.mean())), "osl": str(round(trace.output_tokens.mean())),
            "ttft": f"{1e3 * tier.ttft_slo_s:.0f}", "tpot": f"{1e3 * TPOT_SLO_S:.0f}",
        }  # fmt: skip
        arguments = [part for name, value in query.items() for part in (f"--{name}", value)]
        done = subprocess.run(
            [tool, "cli", "default", *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
        best = next(Path(folder).rglob("best_config_topn.csv"), None)
        row = None if best is None else next(csv.DictReader(best.open()), None)
        return row and (row, next(Path(folder).rglob("run_0.sh")).read_text())


@functools.cache
def default_usd_per_hour(llm: str, copies: int) -> float | None:
    """USD per hour of vLLM's defaults on the best GPU type: the fewest GPUs that hold the llm, whole."""
    traffic = traffic_of(CONVERSATION, copies)
    market, kinds = space_of(ConfigureQuery(llm, GPUS, None, "together", None, TPOT_SLO_S), traffic)
    return least_usd_per_hour(market, traffic, default_points(market, kinds, GPUS))


def least_usd_per_hour(
    market: EngineMarket, traffic: ConfigureTraffic, points: list[EnginePoint]
) -> float | None:
    """USD per hour of the cheapest of some points, each with the fewest instances that attain every tier.

    None where none attains, however many instances it has.
    """
    trials = FleetTrials(with_default_batches(market), traffic.hours)
    scores = race_points(trials, points, 0.0)
    return scores[0].usd_per_hour if scores else None


FUNCTIONS = (speed, exhaustive, over_defaults, ranks, over_aiconfigurator)
SMOKE = {"exhaustive": {"SMALL_SPACES": SMALL_SPACES[:1]}}
