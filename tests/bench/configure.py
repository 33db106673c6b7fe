"""Engine settings: how long the choice takes, and what it saves over exhaustive search and over defaults."""

import csv
import dataclasses
import functools
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from measure import ROOT, Figures, Skipped, Target

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.studies.configure_answer import ConfigureQuery, choose_engine, nest_trials, with_targets
from fleetcast.assets.studies.configure_traffic import ConfigureTraffic, build_traffic_window
from fleetcast.assets.studies.try_fleet import read_file_requests
from fleetcast.models.configure.engine_points import (
    BATCHES,
    ROUTERS,
    TOKEN_BUDGETS,
    EngineMarket,
    EnginePoint,
    EngineSettings,
    EngineShape,
    list_kinds,
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
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

TRACES = ROOT.parent / "shared" / "data" / "traces"
CONVERSATION = "AzureLLMInferenceTrace_conv.csv.gz"
# Copies of the hour, and how far each request of them is shifted, None: each copy as a whole, by any time.
MANY, SOME, BURSTS = (CONVERSATION, 52, None), (CONVERSATION, 8, None), (CONVERSATION, 52, 60.0)
COMPARED_LOADS = {"": MANY, "_bursts": BURSTS, "_small": SOME}  # 1,007,032 requests, twice, and 154,928
GPUS = ("h100-80gb", "h200-141gb", "b200-180gb", "a100-80gb")
LLMS = ("llama3.1-8b", "qwen3-8b", "qwen3-32b", "llama3.1-70b", "qwen3-30b-a3b", "gpt-oss-120b")
WAYS_OF_TOOL = ("agg", "disagg")  # aiconfigurator's --serving-mode
ADVISED_ROWS = 5  # its --top-n
ADVICE = Path(__file__).with_name("aiconfigurator_advice.csv")  # what it answered, version 0.12.0
TPOT_SLO_S = 0.05
RANKS_LLM, RANKS_GPU, RANKS_TPOT_SLO_S = "deepseek-v3", "h200-141gb", 0.1
RANKS_COPIES, RANKS_SHIFT_S = 15, 60.0  # of each request, moved by up to so many seconds: 290,490 requests
ENGINES_OF_EIGHT = {  # shape, and whether experts are whole
    "eight_ranks": (EngineShape(RANKS_GPU, 1, 1, 8), True),
    "whole_experts": (EngineShape(RANKS_GPU, 8), True),
    "split_experts": (EngineShape(RANKS_GPU, 8), False),
}
VIDUR_USD = {"h100-80gb": 4.25, "a100-80gb": 2.21}  # of its code, 7 February 2024
VIDUR_LENGTHS = {"chat": ((686, 417), (197, 139)), "bwb": ((1067, 1037), (1612, 1601))}  # mean and median
VIDUR_RATE, VIDUR_S = 20.0, 600.0  # requests a second
MOST_INSTANCES = 16  # of a shape, in the exhaustive search
# llm, GPU type, floor, way, and every so many of its kinds: more kinds than reach the second stage.
SMALL_SPACES = (
    ("llama3.1-8b", "h100-80gb", "fp8", "together", 3),
    ("qwen3-8b", "b200-180gb", None, "any", 2),
    ("llama3.1-8b", "a100-80gb", None, "together", 1),  # other settings than the default ones pay
)

Load = tuple[str, int, float | None]  # the arguments of traffic_of

TARGETS = {
    "configure_seconds": Target("s", "llama 70B, 4 GPU types, 1 M requests of an hour, CPU", at_most=180.0),
    "configure_points": Target("", "the same, points considered", at_least=2000),
    "configure_replays": Target("", "the same, replays"),
    "configure_over_exhaustive": Target(
        "", "cost over exhaustive search, worst of three small spaces", at_most=1.0
    ),
    "configure_default_settings_over_exhaustive": Target(
        "", "cost with default settings over it, the largest: what a search of engines alone loses"
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
        "", "cost over aiconfigurator's own choice, no fewer bits, median of 6 llms", at_most=0.85
    ),
    "configure_over_aiconfigurator_best": Target("", "the same, over its row that is best in the replay"),
    "configure_steady_over_aiconfigurator": Target(
        "", "steady work of the cheapest deployment over aiconfigurator's own choice, median of 6 llms"
    ),
    "configure_over_aiconfigurator_bursts": Target("", "the first, each request moved by up to a minute"),
    "configure_over_aiconfigurator_bursts_best": Target("", "the second, the same"),
    "configure_steady_over_aiconfigurator_bursts": Target("", "the third, the same"),
    "configure_over_aiconfigurator_small": Target("", "the first, at 155,000 requests an hour"),
    "configure_over_aiconfigurator_small_best": Target("", "the second, the same"),
    "configure_steady_over_aiconfigurator_small": Target("", "the third, the same"),
    **{
        f"configure_vidur_{name}_{gpu}_{figure}": Target(unit, f"llama2-70b, lengths of {name}: {how}")
        for name, gpu in product(("chat", "bwb"), ("h100", "a100"))
        for figure, unit, how in (
            ("qps_per_usd", "1/s per USD/h", "capacity of the choice for its cost"),
            ("batch", "", "requests in a batch of it"),
        )
    },
    "configure_chosen_ranks": Target("", "deepseek-v3 on H200, 15 times the hour: ranks of the choice"),
    "configure_chosen_gpus": Target("", "the same, its GPUs"),
    "configure_ranks_gpus": Target("", "the same, GPUs of the best fleet with ranks"),
    "configure_eight_ranks_tpot_p50_s": Target("s", "8 ranks of an H200 on the hour itself, median TPOT"),
    "configure_eight_ranks_attained": Target("share", "the same, attainment"),
    "configure_whole_experts_tpot_p50_s": Target("s", "tensor_parallel 8, whole experts: median TPOT"),
    "configure_whole_experts_attained": Target("share", "the same, attainment"),
    "configure_split_experts_tpot_p50_s": Target("s", "tensor_parallel 8, experts split: median TPOT"),
    "configure_split_experts_attained": Target("share", "the same, attainment"),
    "configure_aiconfigurator_unanswered": Target("", "questions of 48 without a recorded answer"),
    "configure_aiconfigurator_no_point": Target("", "its rows that the replay has no point for"),
    "configure_aiconfigurator_same_engine": Target("", "choices of 18 with the GPUs of its own choice"),
    "configure_aiconfigurator_nowhere": Target("", "comparisons of 54 left out: none of its rows attains"),
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
        return ConfigureTraffic(name, [window], ("none",), ())
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
    return ConfigureTraffic(f"{copies} x {name}", [hour], ("none",), ())


def speed() -> Figures:
    """CPU seconds of a choice for a million requests; profiles are computed, not read from disk."""
    traffic, begun_s = traffic_of(*MANY), time.process_time()
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
    """The cost of the choice over the least cost of all points of a small space, each with every count.

    So does the cost of the kinds with their default settings: what a search of these alone would lose.
    """
    ratios, defaults = [], []
    traffic = traffic_of(*SOME)
    for llm, gpu, floor, way, every in SMALL_SPACES:
        market, kinds = space_of(ConfigureQuery(llm, (gpu,), floor, way, None, TPOT_SLO_S), traffic)
        kinds, stages = kinds[::every], nest_trials(market, traffic.hours)
        assert len(kinds) > BEST_KINDS
        assert len({id(trials) for trials in stages}) == len(stages)
        trials = FleetTrials(market, traffic.hours)
        least = least_of_all_counts(trials, [point for kind in kinds for point in all_settings(kind)])
        ratios.append(best_fleet(stages, kinds).usd_per_hour / least)
        defaults.append(least_of_all_counts(trials, kinds) / least)
        print(llm, gpu, len(kinds), "kinds", ratios[-1], defaults[-1], "of the least cost", least, flush=True)
    return {
        "configure_over_exhaustive": max(ratios),
        "configure_default_settings_over_exhaustive": max(defaults),
    }


def best_fleet(stages: Sequence[FleetTrials], kinds: Sequence[EnginePoint]) -> FleetScore:
    """The best fleet of these kinds of points; AssertionError where none attains."""
    found = search_engines(*stages, kinds)
    assert found is not None
    return found.finalists[0]


def all_settings(kind: EnginePoint) -> list[EnginePoint]:
    """A kind with each batch, each larger token budget and each router, without the search's own list."""
    return [
        kind._replace(settings=EngineSettings(batch, budget, "none", router))
        for batch, budget, router in product(BATCHES, TOKEN_BUDGETS, ROUTERS)
        if budget > batch
    ]


def least_of_all_counts(trials: FleetTrials, points: Sequence[EnginePoint]) -> float:
    """USD per hour of the cheapest fleet that attains, by every count from one up, without bound or guess."""
    least = float("inf")
    for point in points:
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
    ratios = {llm: cost_over_defaults(llm, None, MANY) for llm in LLMS}
    fp8 = [ratios[llm] if llm in narrow else cost_over_defaults(llm, "fp8", MANY) for llm in LLMS]
    small = [cost_over_defaults(llm, None, SOME) for llm in LLMS]
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


def cost_over_defaults(llm: str, floor: str | None, load: Load) -> float | None:
    """The cost of the choice for a model over that of vLLM's defaults with all its bits; None: nowhere."""
    theirs = default_score(llm, load)
    ratio = None if theirs is None else choose(llm, floor, load).usd_per_hour / theirs.usd_per_hour
    print(llm, floor, load, ratio, "of vLLM's defaults", theirs and theirs.usd_per_hour, flush=True)
    return ratio


def steady_over_defaults(llm: str) -> float | None:
    """The least cost of engines that are always busy over that of vLLM's defaults, both with all bits."""
    theirs = default_score(llm, MANY)
    ratio = None if theirs is None else steady_usd_per_hour(llm, MANY) / theirs.usd_per_hour
    print(llm, ratio, "of vLLM's defaults are steady work", flush=True)
    return ratio


def steady_usd_per_hour(llm: str, load: Load) -> float:
    """USD per hour of the cheapest engines that are always busy with the work of all requests, all bits."""
    traffic = traffic_of(*load)
    market, kinds = space_of(ConfigureQuery(llm, GPUS, None, "any", None, TPOT_SLO_S), traffic)
    trials = FleetTrials(market, traffic.hours)
    most = {"max_batch": BATCHES[-1], "token_budget": TOKEN_BUDGETS[-1]}
    return min(trials.steady_usd(kind._replace(settings=kind.settings._replace(**most))) for kind in kinds)


@functools.cache
def choose(llm: str, floor: str | None, load: Load) -> FleetScore:
    """The choice for a model and a load, prefill and decode together or apart."""
    query, catalogue = ConfigureQuery(llm, GPUS, floor, "any", None, TPOT_SLO_S), load_catalogue()
    config = load_config("office", catalogue)
    best = choose_engine(query, traffic_of(*load), with_targets(catalogue, query), config, Progress()).best
    print(llm, floor, load, best.point, best.counts, best.usd_per_hour, flush=True)
    return best


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
    """The cost of the choice over aiconfigurator's engines, on the same GPU types, for the same traffic.

    It gets the mean lengths and the same targets, and its engines the fewest instances that attain them in
    the replay. Its own choice has the least USD per token by its estimate, of all GPU types, prefill and
    decode together or apart. Its best row has the least cost in the replay. AICONFIGURATOR is the path of its
    command (pip install aiconfigurator==0.12.0, in a Python of its own). Without it, its rows are in ADVICE.
    """
    hour = traffic_of(CONVERSATION)
    if tool := os.environ.get("AICONFIGURATOR"):
        questions = product(LLMS, GPUS, WAYS_OF_TOOL)
        write_advice([row for question in questions for row in ask_aiconfigurator(tool, *question, hour)])
    advice = [row for row in read_advice(mean_lengths(hour)) if row.gpu in GPUS]
    answered = {row[:3] for row in advice}
    ratios: dict[str, list[float | None]] = {}
    without = same = 0
    for llm in LLMS:
        rows = sorted((row for row in advice if row.llm == llm and row.rank), key=estimated_usd)
        _, kinds = space_of(ConfigureQuery(llm, GPUS, None, "any", None, TPOT_SLO_S), hour)
        readings = [points for row in rows if (points := advised_points(row, kinds))]
        every = [point for points in readings for point in points]
        without += len(rows) - len(readings)
        for name, load in COMPARED_LOADS.items():
            chosen, key = choose(llm, None, load), f"over_aiconfigurator{name}"
            theirs = {key: readings[0], f"{key}_best": every}
            for figure, points in theirs.items():
                score = least_score(llm, load, points)
                ratio = None if score is None else chosen.usd_per_hour / score.usd_per_hour
                ratios.setdefault(f"configure_{figure}", []).append(ratio)
                print(llm, figure, ratio, score and (score.point, score.counts), flush=True)
            same += chosen.point.shapes == readings[0][0].shapes
            own = least_score(llm, load, readings[0])
            steady = None if own is None else steady_usd_per_hour(llm, load) / own.usd_per_hour
            ratios.setdefault(f"configure_steady_{key}", []).append(steady)
    return {figure: median_compared(of) for figure, of in ratios.items()} | {
        "configure_aiconfigurator_unanswered": len({*product(LLMS, GPUS, WAYS_OF_TOOL)} - answered),
        "configure_aiconfigurator_no_point": without,
        "configure_aiconfigurator_same_engine": same,
        "configure_aiconfigurator_nowhere": sum(ratio is None for of in ratios.values() for ratio in of),
    }


def vidur() -> Figures:
    """QPS per USD an hour of the choice for LLaMA2-70B, to print with those that Vidur's paper publishes.

    The lengths are drawn from the mean and the median of its workloads (arXiv:2405.05465, table 1), at most
    4,096 tokens together. Prices are those of its code, its targets a TTFT of 2 s at the 90th percentile and
    0.2 s between tokens. Here 0.2 s is the mean of a request, in the paper the 99th percentile of all tokens.
    """
    catalogue, figures = load_catalogue(), Figures()
    tier = dataclasses.replace(
        catalogue.tiers["iw_fast"],
        ttft_slo_s=2.0,
        tpot_slo_s=0.2,
        deadline_s=3600.0,
        attainment_target_share=0.9,
    )
    gpus = {
        name: dataclasses.replace(catalogue.gpus[name], usd_per_hour=usd) for name, usd in VIDUR_USD.items()
    }
    catalogue = dataclasses.replace(
        catalogue, gpus={**catalogue.gpus, **gpus}, tiers={**catalogue.tiers, "iw_fast": tier}
    )
    for name, lengths in VIDUR_LENGTHS.items():
        traffic = draw_traffic(name, *lengths)
        for gpu in VIDUR_USD:
            query = ConfigureQuery("llama2-70b", (gpu,), None, "together")
            config = load_config("office", load_catalogue())
            best = choose_engine(query, traffic, catalogue, config, Progress()).best
            key = f"configure_vidur_{name}_{gpu.split('-')[0]}"
            figures[f"{key}_qps_per_usd"] = VIDUR_RATE / best.usd_per_hour
            figures[f"{key}_batch"] = best.point.settings.max_batch
            print(name, gpu, best.point, best.counts, best.usd_per_hour, best.seconds, flush=True)
    return figures


def draw_traffic(name: str, prompt: tuple[int, int], answer: tuple[int, int]) -> ConfigureTraffic:
    """Poisson arrivals with log-normal lengths; `prompt` and `answer`: their mean and median tokens."""
    rng = np.random.default_rng(1)
    size = int(VIDUR_RATE * VIDUR_S)
    tokens = [
        np.maximum(1, rng.lognormal(np.log(median), np.sqrt(2 * np.log(mean / median)), size)).astype(
            np.int32
        )
        for mean, median in (prompt, answer)
    ]
    tokens[0] = np.minimum(tokens[0], 4000)
    tokens[1] = np.minimum(tokens[1], 4096 - tokens[0])
    arrival_s, zeros = np.sort(rng.uniform(0, VIDUR_S, size)), np.zeros(size, np.int16)
    trace = TraceArrays(arrival_s - arrival_s[0], zeros, zeros, zeros, *tokens)
    return ConfigureTraffic(name, [TrafficWindow({"none": trace})], ("none",), ())


class Advice(NamedTuple):
    """A row of the best engines that aiconfigurator's command saves, and the arguments of these engines."""

    llm: str
    gpu: str
    way: str  # in WAYS_OF_TOOL
    rank: int  # by its tokens per second of a GPU, from 1; 0: it knows no engine
    prompt_tokens: int  # of its query
    answer_tokens: int
    tokens_per_gpu_s: float  # its estimate
    engines: str  # its names of the parallel degrees, those of prefill and decode with a + between
    batch: int  # requests of the engine that decodes, its concurrency
    max_num_seqs: int  # of the engine that decodes
    max_num_batched_tokens: int  # of the engine that prefills


def ask_aiconfigurator(tool: str, llm: str, gpu: str, way: str, traffic: ConfigureTraffic) -> list[Advice]:
    """Its best rows for the mean lengths of a traffic; one of rank 0 without any. RuntimeError: it fails."""
    tier, (prompt, answer) = load_catalogue().tiers["iw_fast"], mean_lengths(traffic)
    with tempfile.TemporaryDirectory() as folder:
        query = {
            "model-path": load_catalogue().llms[llm].model, "system": f"{gpu.split('-')[0]}_sxm",
            "backend": "vllm", "serving-mode": way, "total-gpus": "8", "top-n": str(ADVISED_ROWS),
            "isl": str(prompt), "osl": str(answer), "save-dir": folder,
            "ttft": f"{1e3 * tier.ttft_slo_s:.0f}", "tpot": f"{1e3 * TPOT_SLO_S:.0f}",
        }  # fmt: skip
        arguments = [part for name, value in query.items() for part in (f"--{name}", value)]
        done = subprocess.run(
            [tool, "cli", "default", *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-2000:]}")
        return read_answer(Path(folder), llm, gpu, way, prompt, answer)


def read_answer(folder: Path, llm: str, gpu: str, way: str, prompt: int, answer: int) -> list[Advice]:
    """The rows of a folder that aiconfigurator's command saved; one of rank 0 without any."""
    best = next(folder.rglob("best_config_topn.csv"), None)
    rows = [] if best is None else list(csv.DictReader(best.open()))
    roles, advice = ("",) if way == "agg" else ("(p)", "(d)"), list[Advice]()
    for rank, row in enumerate(rows, 1):
        engine = next(folder.rglob(f"top{rank}/run_0.sh")).read_text()
        sequences = re.findall(r'--max-num-seqs "?(\d+)', engine)[-1]
        tokens = re.findall(r'--max-num-batched-tokens "?(\d+)', engine)[0]
        names = "+".join(row[f"{role}parallel"] for role in roles)
        own_s = round(float(row["tokens/s/gpu"]), 1)
        batch = int(row[f"{roles[-1]}bs"])
        advice.append(
            Advice(llm, gpu, way, rank, prompt, answer, own_s, names, batch, int(sequences), int(tokens))
        )
    return advice or [Advice(llm, gpu, way, 0, prompt, answer, 0.0, "", 0, 0, 0)]


def mean_lengths(traffic: ConfigureTraffic) -> tuple[int, int]:
    """The mean tokens of a prompt and of an answer."""
    trace = traffic.hours[0].trace
    return round(trace.input_tokens.mean()), round(trace.output_tokens.mean())


def write_advice(rows: Sequence[Advice]) -> None:
    """Write rows to ADVICE."""
    with ADVICE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([Advice._fields, *rows])


def read_advice(lengths: tuple[int, int]) -> list[Advice]:
    """The rows of ADVICE for these mean tokens; RuntimeError where it has no answer for an llm."""
    kinds, rows = Advice.__annotations__.values(), list(csv.reader(ADVICE.open()))[1:]
    advice = [Advice(*(kind(text) for kind, text in zip(kinds, row, strict=True))) for row in rows]
    advice = [row for row in advice if row[4:6] == lengths]
    if lacking := {*LLMS} - {row.llm for row in advice}:
        raise RuntimeError(f"{ADVICE.name} has no answer for {min(lacking)}. Set AICONFIGURATOR.")
    return advice


def estimated_usd(row: Advice) -> float:
    """USD of a token by aiconfigurator's estimate, times seconds in an hour."""
    return load_catalogue().gpus[row.gpu].usd_per_hour / row.tokens_per_gpu_s


def advised_points(row: Advice, kinds: Sequence[EnginePoint]) -> list[EnginePoint]:
    """A row in two readings: with the sequences of its engines' arguments, and with its concurrency.

    Empty where the replay has no such point. Apart, both phases have the sequences of the engine that decodes
    and the tokens of the one that prefills.
    """
    engines = [dict(re.findall(r"([a-z]+)(\d+)", name)) for name in row.engines.split("+")]
    shapes = [EngineShape(row.gpu, int(e["tp"]), int(e["pp"]), int(e["dp"])) for e in engines]
    is_whole = {e["ep"] != "1" for e in engines}
    fits = [k for k in kinds if list(k.shapes) == shapes and {k.variant.is_expert_parallel} == is_whole]
    fits = [k for k in fits if k.variant.kv_bits == 16]
    if not fits:
        print("no point:", row, flush=True)
        return []
    tokens = row.max_num_batched_tokens
    return [
        fits[0]._replace(settings=EngineSettings(batch, max(batch, tokens), "none", "round_robin"))
        for batch in (row.max_num_seqs, row.batch)
    ]


@functools.cache
def default_score(llm: str, load: Load) -> FleetScore | None:
    """vLLM's defaults on the best GPU type: the fewest GPUs that hold the llm, whole."""
    traffic = traffic_of(*load)
    market, kinds = space_of(ConfigureQuery(llm, GPUS, None, "together", None, TPOT_SLO_S), traffic)
    return least_score(llm, load, default_points(market, kinds, GPUS))


def least_score(llm: str, load: Load, points: Sequence[EnginePoint]) -> FleetScore | None:
    """The cheapest of some points, each with the fewest instances that attain every tier.

    None where none attains, however many instances it has.
    """
    return next(iter(race_points(trials_of(llm, load), points, 0.0)), None)


@functools.cache
def trials_of(llm: str, load: Load) -> FleetTrials:
    """The trials of a model on a load, with batches up to vLLM's largest default."""
    traffic = traffic_of(*load)
    market, _ = space_of(ConfigureQuery(llm, GPUS, None, "any", None, TPOT_SLO_S), traffic)
    return FleetTrials(with_default_batches(market), traffic.hours)


FUNCTIONS = (speed, exhaustive, over_defaults, ranks, over_aiconfigurator, vidur)
SMOKE = {
    "exhaustive": {"SMALL_SPACES": SMALL_SPACES[:1]},
    "over_aiconfigurator": {
        "LLMS": LLMS[:1],
        "GPUS": ("b200-180gb",),
        "COMPARED_LOADS": {"": (CONVERSATION, 2, None)},
    },
    "vidur": {
        "VIDUR_USD": {"h100-80gb": 4.25},
        "VIDUR_S": 60.0,
        "VIDUR_LENGTHS": {"chat": VIDUR_LENGTHS["chat"]},
    },
}
