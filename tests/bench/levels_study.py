"""Levels of priority, headroom and moves, part by part: data/studies/levels.md holds what this prints.

Every trial of a table has the same requests, batching, memory and latency as its neighbours; no request is
cut.
Seeds are paired: a difference is that of two stacks on the same requests. Intervals are 95 %, by Student's t.
"""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from levels import write_day
from llumnix import LLM as PAPER_LLM
from llumnix import REPLICAS, paper_deployment, paper_trace, play, under
from llumnix import REQUESTS_PER_S as PAPER_PER_S
from measure import Figures, Target
from scipy.stats import t as student
from workloads import INPUT_SIGMA, INPUT_TOKENS, LLM, OUTPUT_SIGMA, OUTPUT_TOKENS, setting

from fleetcast.assets.lake.settings import Progress, build_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies.level_search import LevelsQuery, describe_endpoint_levels, try_levels
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.state import MOVE_ABORTED
from fleetcast.models.traffic.priority_levels import draw_levels
from fleetcast.models.trials.capacity import measure_capacity_tokens_per_s
from fleetcast.models.world.mechanisms import Ending
from fleetcast.models.world.stacks import REPLAY_STACKS, Stack

Rows = list[dict[str, Any]]
TraceOf = Callable[[str, int], TraceArrays]  # by case and seed
INSTANCES, REQUESTS, LEVELS = 4, 4_000, 4
FEW, MANY = range(1, 6), range(1, 21)  # seeds
LOADS = (0.5, 0.7, 0.8, 0.9, 0.95, 1.0, 1.2)
SAMPLERS = ("uniform", "gaussian", "enterprise")
TIMES = ("ttft_mean_s", "ttft_p99_s", "e2e_mean_s", "e2e_p99_s")
PUBLISHED = (  # multi-tier Llumnix, Tables 2 to 4: E2E P99 and mean over INFaaS's, and its "Cost/Lat." in %
    *((2.87, 2.80, 65), (3.13, 2.88, 68), (3.04, 2.92, 67), (1.87, 1.97, 46), (2.12, 2.08, 53)),
    *((2.04, 2.12, 51), (2.26, 2.45, 56), (3.07, 2.79, 67), (2.43, 2.74, 59), (1.49, 1.71, 33)),
    *((2.02, 1.96, 51), (1.97, 1.67, 41), (2.18, 2.27, 54), (3.02, 2.79, 67), (2.96, 2.89, 66)),
    *((1.31, 1.44, 24), (1.94, 1.95, 48), (1.97, 2.08, 49)),
)
TARGETS = {
    "levels_study_published_p99_rows": Target(
        "", "of the text's 18 figures of cost per latency: those that are 1 - 1 / (its E2E P99 speedup)"
    ),
    "levels_study_published_mean_rows": Target("", "the same of its E2E mean"),
    "levels_study_cost_per_latency_share": Target(
        "", "1 - 1 / (INFaaS's E2E P99 over Llumnix's where all waiting requests count)"
    ),
    "levels_study_cost_per_latency_part_load_share": Target("", "the same as printed, at load 0.7"),
    "levels_study_round_robin_over_llumnix": Target(
        "x", "multi-tier Llumnix's setup, decodes hold KV: E2E P99 of round robin over that of all of it"
    ),
    "levels_study_infaas_over_llumnix": Target("x", "the same of INFaaS; the text: 3.13 at 10,000 requests"),
    "levels_study_infaas_over_round_robin": Target("x", "the same of INFaaS over round robin"),
    "levels_study_infaas_over_llumnix_all": Target("x", "INFaaS over it where all waiting requests count"),
    "levels_study_infaas_over_llumnix_all_roomy": Target("x", "the same with 118,784 tokens of KV cache"),
    "levels_study_top_p99_s": Target("s", "the same setup: TTFT P99 of the highest of four levels"),
    "levels_study_top_no_headroom_p99_s": Target("s", "the same without headroom"),
    "levels_study_moves_gain_s": Target(
        "s", "4 llama2-70b at load 1: TTFT P99 that guarded moves save on the shortest queue"
    ),
}


# --- trials ------------------------------------------------------------------------------------------------


def times_of(trace: TraceArrays, outcome: Outcome) -> dict[str, Any]:
    """What came of a trial: times pooled and of the highest and the lowest level, moves, memory taken."""
    ttft_s, e2e_s = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
    done = outcome.status == Ending.FINISHED
    table: dict[str, Any] = {"unfinished": int((~done).sum())}
    for name, seconds in (("ttft", ttft_s[done]), ("e2e", e2e_s[done])):
        table |= {f"{name}_mean_s": seconds.mean(), f"{name}_p99_s": np.quantile(seconds, 0.99)}
    lowest = int(trace.level.max())
    for name, level in (("top", 0), ("bottom", lowest)):
        own = done & (trace.level == level)
        table |= {f"{name}_p50_s": np.median(ttft_s[own]), f"{name}_p99_s": np.quantile(ttft_s[own], 0.99)}
    moved = np.zeros(done.size, bool) if not outcome.sent_from.size else outcome.sent_from >= 0
    stopped_s = (outcome.joined_s - outcome.sent_s)[moved] if moved.any() else np.zeros(1)
    return table | {
        "moves": outcome.moved[..., :MOVE_ABORTED].sum() / done.size,
        "stopped_p99_s": float(np.nanquantile(stopped_s, 0.99)),
        "preemptions": outcome.preemptions.sum() / done.size,
        "recomputed_share": outcome.recomputed_tokens / max(1, outcome.cached_tokens),
    }


def trials(
    cases: Mapping[str, tuple[FleetArrays, Rules]], trace_of: TraceOf, seeds: Iterable[int], **of: Any
) -> Rows:
    """A row for each case and seed; `of` says what else they are."""
    rows = []
    for seed in seeds:
        for case, (fleet, rules) in cases.items():
            trace = trace_of(case, seed)
            rows.append({**of, "case": case, "seed": seed, **times_of(trace, play(trace, fleet, rules))})
    return rows


def show(title: str, rows: pd.DataFrame) -> None:
    """A table as Markdown."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(map(str, rows.columns)) + " |")
    print("| " + " | ".join("---" for _ in rows.columns) + " |")
    for row in rows.itertuples(index=False):
        print("| " + " | ".join(f"{v:.3g}" if isinstance(v, float) else str(v) for v in row) + " |")


def with_interval(values: np.ndarray, form: str = ".2f") -> str:
    """The mean of paired values and its 95 % interval."""
    half = student.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return f"{values.mean():{form}} ±{half:{form}}"


def compare_cases(
    frame: pd.DataFrame, base: str, columns: Iterable[str], ratio: bool, by: list[str]
) -> pd.DataFrame:
    """Of each case and `by` the paired ratio of the base to it, or its difference from the base."""
    table = []
    for key, own in frame.groupby([*by, "case"], sort=False):
        here = frame[frame["case"] == base]
        for name, value in zip(by, key, strict=False):
            here = here[here[name] == value]
        mine, its = own.set_index("seed"), here.set_index("seed")
        row = dict(zip([*by, "case"], key, strict=True))
        for column in columns:
            pair = its[column] / mine[column] if ratio else mine[column] - its[column]
            row[column] = with_interval(pair.to_numpy(float))
        table.append(row)
    return pd.DataFrame(table)


# --- X1, X3: the paper's own setup -------------------------------------------------------------------------

OF_PAPER = {
    "infaas": (REPLAY_STACKS["infaas"], 1),
    "round_robin": (REPLAY_STACKS["round_robin"]._replace(order="fcfs"), 1),
    "jsq": (REPLAY_STACKS["jsq"]._replace(order="fcfs"), 1),
    "round_robin, levels": (REPLAY_STACKS["round_robin"], LEVELS),
    "llumnix": (REPLAY_STACKS["llumnix"], LEVELS),
    "llumnix, guarded": (
        REPLAY_STACKS["llumnix"]._replace(moves={**REPLAY_STACKS["llumnix"].moves, "is_guarded": True}),
        LEVELS,
    ),
    "jsq_moves": (REPLAY_STACKS["jsq_moves"], LEVELS),
    **{
        f"llumnix, {name}": (
            REPLAY_STACKS["llumnix"]._replace(levels={**REPLAY_STACKS["llumnix"].levels, **changes}),
            LEVELS,
        )
        for name, changes in (("all who wait", {"demand": "all"}), ("no headroom", {"headroom_share": 0.0}))
    },
}


def of_paper(
    kv_tokens: int = 2048, batching: str = "whole", levels: int = LEVELS
) -> dict[str, tuple[FleetArrays, Rules]]:
    """The stacks on the paper's replicas."""
    deployment = paper_deployment(kv_tokens, batching)
    return {
        name: under(stack, levels if count > 1 else 1, PAPER_LLM, deployment, REPLICAS)
        for name, (stack, count) in OF_PAPER.items()
    }


def paper_requests(requests: int, per_s: float, by: str, levels: int) -> TraceOf:
    """Those of a seed; a case of one level has the same on one."""

    def trace_of(case: str, seed: int) -> TraceArrays:
        return paper_trace(requests, per_s, 1 if OF_PAPER[case][1] == 1 else levels, by, seed)

    return trace_of


def x1() -> Figures:
    """X1: what is left of 8.3x and 3.1x when decodes hold KV, against INFaaS and round robin."""
    rows: Rows = []
    for kv_tokens, batching, requests in product((2048, 118_784), ("whole", "chunked"), (10_000, 15_000)):
        cases = of_paper(kv_tokens, batching)
        trace_of = paper_requests(requests, PAPER_PER_S, "uniform", LEVELS)
        rows += trials(cases, trace_of, FEW, kv=kv_tokens, batching=batching, requests=requests)
    frame = pd.DataFrame(rows)
    setup = ["kv", "batching", "requests"]
    seconds = (
        frame.groupby([*setup, "case"], sort=False)[[*TIMES, "moves", "unfinished"]].mean().reset_index()
    )
    show("X1: seconds", seconds)
    for base in ("infaas", "round_robin"):
        show(f"X1: faster than {base}, x", compare_cases(frame, base, TIMES, ratio=True, by=setup))
    first = seconds[
        (seconds["kv"] == 2048) & (seconds["batching"] == "whole") & (seconds["requests"] == 10_000)
    ]
    p99 = first.set_index("case")["e2e_p99_s"]
    of_case = frame[(frame["batching"] == "whole") & (frame["requests"] == 10_000)].groupby(["kv", "case"])
    roomy, top = of_case["e2e_p99_s"].mean()[118_784], of_case["top_p99_s"].mean()[2048]
    return {
        "levels_study_cost_per_latency_share": 1 - p99["llumnix, all who wait"] / p99["infaas"],
        "levels_study_infaas_over_llumnix_all": p99["infaas"] / p99["llumnix, all who wait"],
        "levels_study_infaas_over_llumnix_all_roomy": roomy["infaas"] / roomy["llumnix, all who wait"],
        "levels_study_top_p99_s": top["llumnix"],
        "levels_study_top_no_headroom_p99_s": top["llumnix, no headroom"],
        "levels_study_round_robin_over_llumnix": p99["round_robin"] / p99["llumnix"],
        "levels_study_infaas_over_llumnix": p99["infaas"] / p99["llumnix"],
        "levels_study_infaas_over_round_robin": p99["infaas"] / p99["round_robin"],
    }


def x1_by_load() -> Figures:
    """X1 by load: the same replicas at a part of what they serve."""
    cases, rows = of_paper(), list[dict[str, Any]]()
    flood = paper_trace(10_000, PAPER_PER_S, 1, "uniform", 1)
    fleet, rules = cases["jsq"]
    served_per_s = 10_000 / float(np.nanmax(play(flood, fleet, rules).finish_s))
    for load in (0.7, 0.9, 1.0, 1.1):
        trace_of = paper_requests(10_000, load * served_per_s, "uniform", LEVELS)
        rows += trials(cases, trace_of, FEW, load=load)
    frame = pd.DataFrame(rows)
    columns = ["ttft_p99_s", "e2e_p99_s", "top_p99_s", "bottom_p99_s", "moves"]
    show(f"X1 by load of {served_per_s:.0f} requests/s: seconds",
         frame.groupby(["load", "case"], sort=False)[columns].mean().reset_index())  # fmt: skip
    show(
        "X1 by load: faster than round robin, x",
        compare_cases(frame, "round_robin", TIMES, ratio=True, by=["load"]),
    )
    p99 = frame.groupby(["load", "case"])["e2e_p99_s"].mean()[0.7]
    return {"levels_study_cost_per_latency_part_load_share": 1 - p99["llumnix"] / p99["infaas"]}


def cost_per_latency() -> Figures:
    """What the text's "Cost/Lat." is computed of: its own speedups, each rounded to two digits."""
    of_p99, of_mean, percent = np.array(PUBLISHED).T
    figures = Figures()
    for name, speedup in (("p99", of_p99), ("mean", of_mean)):
        least, most = (100 * (1 - 1 / (speedup + end)) for end in (-0.005, 0.005))
        is_same = (least - 0.5 <= percent) & (percent <= most + 0.5)
        print(f"Cost/Lat. is 1 - 1 / (speedup of E2E {name}) in {is_same.sum()} of {is_same.size} rows")
        figures[f"levels_study_published_{name}_rows"] = float(is_same.sum())
    return figures


def x3() -> Figures:
    """X3: is any number of levels best for the pooled times, under the paper's stack and load?"""
    rows: Rows = []
    for by, levels in product(SAMPLERS, (1, 2, 3, 4, 5, 7, 10)):
        cases = of_paper(levels=levels)
        wanted = {name: cases[name] for name in ("round_robin", "llumnix")}
        if levels == 1:
            wanted["llumnix"] = under("llumnix", 1, PAPER_LLM, paper_deployment(), REPLICAS)
        trace_of = paper_requests(10_000, PAPER_PER_S, by, levels)
        rows += trials(wanted, trace_of, FEW, by=by, levels=levels)
    frame = pd.DataFrame(rows)
    table = compare_cases(frame, "round_robin", ("ttft_p99_s", "e2e_p99_s"), ratio=True, by=["by", "levels"])
    by_level = frame.groupby(["by", "levels", "case"])[["top_p99_s", "bottom_p99_s"]].mean().reset_index()
    table = table.merge(by_level, on=["by", "levels", "case"])
    show("X3: faster than round robin by the number of levels, x", table[table["case"] == "llumnix"])
    return {}


# --- X2, X5, X6, X8: part by part on an endpoint ------------------------------------------------------------


def parts() -> dict[str, Stack]:
    """Routing, order, demand, headroom and moves, one after the other."""
    jsq, free, llumnix = REPLAY_STACKS["jsq"], REPLAY_STACKS["freeness"], REPLAY_STACKS["llumnix"]
    none = {"headroom_share": 0.0}
    return {
        "round_robin, fcfs": REPLAY_STACKS["round_robin"]._replace(order="fcfs"),
        "round_robin": REPLAY_STACKS["round_robin"],
        "infaas": REPLAY_STACKS["infaas"],
        "jsq, fcfs": jsq._replace(order="fcfs"),
        "jsq": jsq,
        "preemptive": REPLAY_STACKS["preemptive"],
        "holdback": REPLAY_STACKS["holdback"],
        "freeness, fcfs": with_levels(free._replace(order="fcfs"), **none),
        "freeness, no headroom": with_levels(free, **none),
        "freeness of all who wait": with_levels(free, demand="all", **none),
        "freeness": free,
        "llumnix": llumnix,
        "llumnix, guarded, 500 ms": with_moves(llumnix, interval_s=0.5, is_guarded=True),
        "llumnix of all who wait": with_levels(llumnix, demand="all"),
        "jsq_moves": REPLAY_STACKS["jsq_moves"],
        "jsq_moves from anywhere": with_moves(REPLAY_STACKS["jsq_moves"], from_blocks=None),
        "jsq, moves as printed": with_moves(REPLAY_STACKS["jsq_moves"], **llumnix.moves),
        "jsq, fcfs, moves as printed": with_moves(REPLAY_STACKS["jsq_moves"], **llumnix.moves)._replace(
            order="fcfs"
        ),
    }


def with_levels(stack: Stack, **changes: Any) -> Stack:
    """The stack with other figures of levels."""
    return stack._replace(levels={**stack.levels, **changes})


def with_moves(stack: Stack, **changes: Any) -> Stack:
    """The stack with other figures of moves."""
    return stack._replace(moves={**stack.moves, **changes})


def office_tokens(requests: int, seed: int, input_tokens: float = INPUT_TOKENS) -> tuple[Any, Any]:
    """Lognormal prompts and answers."""
    rng = np.random.default_rng([seed, 2])

    def drawn(mean: float, sigma: float) -> np.ndarray:
        return np.maximum(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, requests), 1).astype(np.int32)

    return drawn(input_tokens, INPUT_SIGMA), drawn(OUTPUT_TOKENS, OUTPUT_SIGMA)


@cache
def load_one_per_s(input_tokens: float = INPUT_TOKENS) -> float:
    """Requests/s that models/trials/capacity.py finds for the strictest tier, by jsq and fcfs."""
    catalogue, config = setting()
    inputs, outputs = office_tokens(20_000, 0, input_tokens)
    pool = config.fleet.deployments[LLM][0]
    rate = measure_capacity_tokens_per_s(LLM, pool, catalogue.serving([LLM]), config, inputs, outputs)
    return INSTANCES * rate / float(inputs.mean())


def requests_at(load: float, input_tokens: float = INPUT_TOKENS, by: str = "enterprise") -> TraceOf:
    """Poisson arrivals at a part of load 1."""

    def trace_of(_: str, seed: int) -> TraceArrays:
        inputs, outputs = office_tokens(REQUESTS, seed, input_tokens)
        rng = np.random.default_rng([seed, 3])
        arrival_s = np.cumsum(rng.exponential(1 / (load * load_one_per_s(input_tokens)), REQUESTS))
        zero_ids = np.zeros(REQUESTS, np.int16)
        level = draw_levels(zero_ids.size, by, LEVELS, seed)
        return TraceArrays(arrival_s, zero_ids, zero_ids, zero_ids, inputs, outputs, level=level)

    return trace_of


def on_endpoint(stacks: Mapping[str, Stack], **fleet: Any) -> dict[str, tuple[FleetArrays, Rules]]:
    """The stacks on four instances of llama2-70b."""
    _, config = setting()
    pool = config.fleet.deployments[LLM][0]
    return {name: under(stack, LEVELS, LLM, pool, INSTANCES, **fleet) for name, stack in stacks.items()}


SHOWN = ["ttft_p99_s", "top_p99_s", "bottom_p99_s", "e2e_p99_s"]


def x2() -> Figures:
    """X2: which part moves what, by load, against the shortest queue with levels."""
    cases, rows = on_endpoint(parts()), list[dict[str, Any]]()
    for load in LOADS:
        rows += trials(cases, requests_at(load), MANY, load=load)
    frame = pd.DataFrame(rows)
    means = frame.groupby(["load", "case"], sort=False)[[*SHOWN, "moves", "preemptions"]].mean().reset_index()
    show(f"X2: seconds, load 1 is {load_one_per_s():.2f} requests/s", means)
    show("X2: seconds later than jsq", compare_cases(frame, "jsq", SHOWN, ratio=False, by=["load"]))
    at_one = frame[frame["load"] == 1.0].groupby("case")["ttft_p99_s"].mean()
    return {"levels_study_moves_gain_s": float(at_one["jsq"] - at_one["jsq_moves"])}


def x5() -> Figures:
    """X5: headroom: its share, and batches of 4, 16 and 64."""
    rows: Rows = []
    for batch, load in ((64, 1.0), (64, 1.2), (16, 1.0), (4, 1.0)):
        stacks = {
            f"{name}, {share:g}": with_levels(REPLAY_STACKS[name], headroom_share=share)
            for name, share in product(("freeness", "llumnix"), (0.0, 0.1, 0.2, 0.4))
        }
        slower = load * {64: 1.0, 16: 0.6, 4: 0.12}[batch]  # a small batch serves less
        rows += trials(
            on_endpoint(stacks, max_batch=batch), requests_at(slower), MANY, batch=batch, load=slower
        )
    frame = pd.DataFrame(rows)
    show("X5: headroom", frame.groupby(["batch", "load", "case"], sort=False)[SHOWN].mean().reset_index())
    base = "freeness, 0"
    columns = ["top_p99_s", "bottom_p99_s"]
    show(
        f"X5: seconds later than {base}",
        compare_cases(frame, base, columns, ratio=False, by=["batch", "load"]),
    )
    return {}


def x6() -> Figures:
    """X6: when moves pay: link, interval, from where, guard, prompts."""
    rows: Rows = []
    jsq, moving = REPLAY_STACKS["jsq"], REPLAY_STACKS["jsq_moves"]
    for gbit_per_s in (8.0, 64.0, 200.0, 400.0):
        stacks = {"jsq": jsq} | {
            f"{each:g} s, from {start}, {'guarded' if guard else 'unguarded'}": with_moves(
                moving, interval_s=each, from_blocks=start, is_guarded=guard
            )
            for each, start, guard in product((0.05, 0.5), (3.0, None), (True, False))
        }
        cases = on_endpoint(stacks, link_gbit_per_s=gbit_per_s)
        rows += trials(cases, requests_at(1.0), MANY, prompt=INPUT_TOKENS, gbit_per_s=gbit_per_s)
    for prompt in (100, 12_000):
        stacks = {
            "jsq": jsq,
            "0.5 s, from 3.0, guarded": moving,
            "0.5 s, from None, guarded": with_moves(moving, from_blocks=None),
            "0.5 s, from 3.0, lowest first": with_moves(moving, lowest_first=True),
        }
        cases = on_endpoint(stacks, link_gbit_per_s=64.0)
        rows += trials(cases, requests_at(1.0, prompt), MANY, prompt=prompt, gbit_per_s=64.0)
    frame = pd.DataFrame(rows)
    columns = [*SHOWN, "moves", "stopped_p99_s", "preemptions", "recomputed_share"]
    by = ["prompt", "gbit_per_s"]
    show("X6: moves", frame.groupby([*by, "case"], sort=False)[columns].mean().reset_index())
    show("X6: seconds later than jsq", compare_cases(frame, "jsq", SHOWN, ratio=False, by=by))
    return {}


def x8() -> Figures:
    """X8: the paper's future work: promotion."""
    stacks = {
        **{
            f"jsq, promoted after {s:g} s": with_levels(REPLAY_STACKS["jsq"], promote_s=s)
            for s in (1.0, 10.0, 60.0)
        },
        "jsq": REPLAY_STACKS["jsq"],
    }
    cases, rows = on_endpoint(stacks), list[dict[str, Any]]()
    for load in (1.0, 1.2):
        rows += trials(cases, requests_at(load), MANY, load=load)
    frame = pd.DataFrame(rows)
    show("X8: seconds", frame.groupby(["load", "case"], sort=False)[SHOWN].mean().reset_index())
    show("X8: seconds later than jsq", compare_cases(frame, "jsq", SHOWN, ratio=False, by=["load"]))
    return {}


# --- X4: instances -----------------------------------------------------------------------------------------


def x4() -> Figures:
    """X4: what levels are worth: the fewest instances for all needs at endpoints of the default day."""
    catalogue, config = setting()
    day = config.trace.replay_day
    stacks = ("round_robin", "jsq", "infaas", "preemptive", "holdback", "freeness", "llumnix", "jsq_moves")
    with tempfile.TemporaryDirectory() as folder:
        settings = build_settings(Lake(Path(folder)), catalogue, config)
        write_day(settings.lake, day)
        for llm, region in (("bloom-176b", "east"), ("llama2-70b", "central"), ("llama3.1-8b", "east")):
            levels_query = LevelsQuery(llm, region, (1, 2, 3, 4, 6, 10), "enterprise", stacks, hours=2)
            try_levels(settings, day, levels_query, Progress())
            print(*describe_endpoint_levels(settings, day, llm, region), sep="\n")
        rows = settings.lake.sql(
            "select llm, needs_by, stack, levels, instances from level_value order by all"
        ).to_pandas()
        wide = rows.pivot_table("instances", ["llm", "needs_by", "stack"], "levels", "min").reset_index()
        show("X4: fewest instances by levels", wide)
        few = ("round_robin", "jsq", "jsq_moves")
        for ends_s in ((1.0, 60.0), (1.0, 600.0)):  # five times the load: a finer resolution
            levels_query = LevelsQuery(
                "llama2-70b", "central", (1, 2, 4, 10), "uniform", few, (5.0,), (), ends_s, hours=2
            )
            outcomes = try_levels(settings, day, levels_query, Progress()).to_pandas()
            print(*describe_endpoint_levels(settings, day, "llama2-70b", "central"), sep="\n")
            own = outcomes.query("level == 'all' and stack == 'jsq' and needs_by == 'uniform'")
            worst = own.pivot_table("worst_need_share", "instances", "levels").reset_index()
            show(f"X4: the need that comes off worst, jsq, five times the load, to {ends_s[1]:g} s", worst)
    return {}


FUNCTIONS = (x1, x1_by_load, cost_per_latency, x3, x2, x4, x5, x6, x8)
SMALL = {"REQUESTS": 40, "FEW": (1, 2), "MANY": (1, 2), "LOADS": (0.5, 1.0)}
SMOKE = dict.fromkeys(("x1", "x1_by_load", "cost_per_latency", "x3", "x2", "x5", "x6", "x8"), SMALL)
