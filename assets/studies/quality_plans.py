"""Plans for quality: tables propose, the replay of the whole decides, and others stand beside what it chose.

For (quality, latency) every point with the quality gets its cheapest replicas at the asked latency and at
some above it: what tables promise lies above what whole plans take. They are replayed, the cheapest first,
until one keeps both; then a replica fewer of each shape and the neighbouring points are tried, while that is
cheaper. Choosing is done on one half of the questions; what is told is replayed on the other, with other
arrivals.
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from assets.lake.schemas import SCHEMAS
from assets.lake.settings import Progress, Settings
from assets.studies.quality_markets import FRESH, Market, market_of
from models.plan import boute
from models.plan.quality import (
    LEAST_LOAD_SHARE,
    Answer,
    Offer,
    cheapest,
    cost_front,
    least_cost,
    least_latency,
    loads,
    most_loads,
)
from models.replay.answering import Served
from models.world.reading import ConfigError

BEYOND = (1.0, 1.1, 1.2, 1.35, 1.5)  # of the asked latency, at which tables propose
BEYOND_LOAD = 1.15  # of the largest load of its table, that a replica may get where a whole replay bears it
ERRORS = 3.92  # standard errors between the ends of an interval of 95 %
CHOOSING = (0, 2)  # seeds of the arrivals that choose
QUALITY_STEP, LATENCY_STEP_SHARE = 0.01, 0.1  # what one step of a requirement is
LOTS, KNOWS = "random", "oracle"  # judges at the ends of the dial


class Question(NamedTuple):
    """What is asked of a plan."""

    quality: float
    latency_s: float
    budget_usd_per_hour: float = np.inf

    def check(self) -> None:
        """Refuse what no plan could be asked."""
        for name, value, most, what in (
            ("--quality", self.quality, 1.0, "a mean score, above 0 and up to 1"),
            ("--latency", self.latency_s, 1e6, "seconds, above 0"),
            ("--budget", self.budget_usd_per_hour, np.inf, "USD per hour, above 0"),
        ):
            if not 0 < value <= most:
                raise ConfigError(f"{name} {value:g}: needed {what}.")

    @property
    def name(self) -> str:
        """As the lake's folders have it."""
        budget = "" if math.isinf(self.budget_usd_per_hour) else f"_{self.budget_usd_per_hour:g}usd"
        return f"{self.quality:g}_{self.latency_s:g}s{budget}"


class Plan(NamedTuple):
    """A row of quality_plans: a plan with what became of it, or why there is none."""

    name: str
    kind: str  # chosen, baseline, judge, or front
    market: Market
    rule: str
    answer: Answer
    served: Served


def plan_quality(settings: Settings, question: Question, with_front: bool, progress: Progress) -> list[Plan]:
    """The plan that is asked for, what stands beside it, and the front; written to the lake.

    ConfigError names the requirement that binds, and what is nearest, where no plan keeps all.
    """
    question.check()
    market = market_of(settings, progress)
    plans = [chosen(market, question, progress), *baselines(market, question)]
    if with_front:
        for judge in dict.fromkeys((market.name, LOTS, KNOWS)):
            own = market if judge == market.name else market_of(settings, progress, judge)
            plans += fronts(own, question)
    write(settings, question, plans)
    return plans


def chosen(market: Market, question: Question, progress: Progress) -> Plan:
    """The cheapest plan that keeps all requirements in the replay."""
    best: tuple[str, Answer] | None = None
    tried: set[tuple[str, int, bytes]] = set()
    with progress.bar("replay plans", market.said.replays) as done:
        waiting = proposed(market, question)
        while len(tried) < market.said.replays:
            one = next((one for one in waiting if _is_worth_it(one, best, tried)), None)
            if one is None:
                break
            tried.add(_key(one))
            done(len(tried))
            if keeps(market, question, *one):
                best = one
                more = sorted(neighbours(market, *best), key=lambda near: near[1].usd_per_hour)
                waiting = chain(waiting, more)
    if best is None:
        raise ConfigError(why_none(market, question, replayed=bool(tried)))
    return Plan("chosen", "chosen", market, *best, market.play(*best, FRESH))


def _is_worth_it(
    one: tuple[str, Answer], best: tuple[str, Answer] | None, tried: set[tuple[str, int, bytes]]
) -> bool:
    is_cheaper = best is None or one[1].usd_per_hour < best[1].usd_per_hour - 1e-9
    return is_cheaper and _key(one) not in tried


def _key(one: tuple[str, Answer]) -> tuple[str, int, bytes]:
    return one[0], one[1].point, one[1].instances.tobytes()


def proposed(market: Market, question: Question) -> Iterator[tuple[str, Answer]]:
    """The cheapest replicas of every point with the quality: at the asked latency, then above it."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    for factor in BEYOND:
        found = [
            (rule, plan)
            for rule, offer in market.offers.items()
            for point in np.flatnonzero(offer.quality - offer.error >= question.quality).tolist()
            if (plan := cheapest(offer, demand, point, factor * question.latency_s)) is not None
        ]
        yield from sorted(found, key=lambda one: one[1].usd_per_hour)


def neighbours(market: Market, rule: str, plan: Answer) -> Iterator[tuple[str, Answer]]:
    """A replica fewer of a shape; a cheaper one in its place; the same replicas at the points beside."""
    offer = market.offers[rule]
    for shape in np.flatnonzero(plan.instances):
        fewer = plan.instances.copy()
        fewer[shape] -= 1
        yield rule, repriced(market, offer, plan._replace(instances=fewer))
        is_like = (offer.llm == offer.llm[shape]) & (offer.usd_per_hour < offer.usd_per_hour[shape])
        for other in np.flatnonzero(is_like):
            swapped = fewer.copy()
            swapped[other] += 1
            used = np.bincount(offer.gpu, swapped * offer.gpus, market.demand.cap_gpus.size)
            if (used <= market.demand.cap_gpus).all():
                yield rule, repriced(market, offer, plan._replace(instances=swapped))
    for point in (plan.point - 1, plan.point + 1):
        if 0 <= point < len(offer.quality):
            yield rule, repriced(market, offer, plan._replace(point=point))


def repriced(market: Market, offer: Offer, plan: Answer) -> Answer:
    """The plan at what its replicas cost."""
    judging_usd = offer.judging_usd(plan.point, market.demand.requests_per_s)
    return plan._replace(usd_per_hour=float(plan.instances @ offer.usd_per_hour) + judging_usd)


def keeps(market: Market, question: Question, rule: str, plan: Answer) -> bool:
    """Whether a plan keeps the requirements in two replays, both with a standard error to spare."""
    offer = market.offers[rule]
    serves = np.bincount(offer.llm, plan.instances, offer.shares.shape[1]) > 0
    if not serves[offer.shares[plan.point] > LEAST_LOAD_SHARE].all():
        return False
    if (loads(offer, market.demand, plan) > BEYOND_LOAD * most_loads(offer, plan.point)).any():
        return False
    for seed in CHOOSING:
        found = market.play(rule, plan, seed)
        if found.p95_s > question.latency_s or found.quality < question.quality:
            return False
        (low_s, high_s), (low, high) = found.intervals()
        spare_s, spare = (high_s - low_s) / ERRORS, (high - low) / ERRORS
        if found.p95_s + spare_s > question.latency_s or found.quality - spare < question.quality:
            return False
    return True


def why_none(market: Market, question: Question, replayed: bool = False) -> str:
    """Which requirement binds, and what the nearest plan gives."""
    llms = market.said.llms
    best = max(float(offer.quality.max()) for offer in market.offers.values())
    if best < question.quality:
        return (
            f"No plan has a quality of {question.quality:g}: the best of {', '.join(llms)} together "
            f"by the judge {market.name} is {best:.3f}. Ask for less, or add a better llm to [quality]."
        )
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    offers = market.offers.values()
    asked = f"quality {question.quality:g} within {question.latency_s:g} s"
    if not math.isinf(question.budget_usd_per_hour):
        free = [least_cost(one, market.demand, question.quality, question.latency_s) for one in offers]
        if costs := [found.usd_per_hour for found in free if found]:
            return (
                f"No plan gives {asked} for {question.budget_usd_per_hour:g} USD/h: the budget binds; tables "
                f"ask for {min(costs):.2f} USD/h. Raise --budget, or ask for less."
            )
    quick = [found for one in offers if (found := least_latency(one, demand, question.quality))]
    if not quick:
        return f"No plan gives {asked}: these GPUs do not carry the load. Add GPUs to [quality] gpus."
    least = min(one.latency_s for one in quick)
    binds = "the replays of the proposed plans miss it" if replayed else "the latency binds"
    return (
        f"No plan gives {asked}: {binds}; tables promise {least:.1f} s at the least. Raise --latency, or add "
        "GPUs to [quality] gpus."
    )


def baselines(market: Market, question: Question) -> list[Plan]:
    """The cheapest plans of others that tables know: the largest llm alone, equal money, one GPU type."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    found: list[tuple[str, str, Answer | None]] = []
    for rule, offer in market.offers.items():
        own = least_cost(offer, demand, question.quality, question.latency_s)
        found.append((f"{rule}_by_tables", rule, own))
        if rule == "route":
            found.append(("alone", rule, boute.alone(offer, demand, question.latency_s)))
            equal = boute.equal_money(offer, demand, question.quality, question.latency_s)
            found.append(("equal_money", rule, equal))
    for code in np.unique(np.concatenate([offer.gpu for offer in market.offers.values()])):
        gpu = list(market.catalogue.gpus)[code]
        for rule, offer in market.offers.items():
            own = least_cost(
                offer.only(shapes=offer.gpu == code), demand, question.quality, question.latency_s
            )
            if own is not None:
                instances = np.zeros(offer.gpu.size, np.int64)
                instances[offer.gpu == code] = own.instances
                own = own._replace(instances=instances)
            found.append((f"{rule}_{gpu}_only", rule, own))
    return [
        Plan(name, "baseline", market, rule, answer, market.play(rule, answer, FRESH))
        for name, rule, answer in found
        if answer is not None
    ]


def fronts(market: Market, question: Question) -> list[Plan]:
    """Least cost over quality within the latency, by rule, each plan replayed."""
    demand = market.demand._replace(budget_usd_per_hour=question.budget_usd_per_hour)
    return [
        Plan(f"{rule}_{market.name}_{n:02d}", "front", market, rule, one, market.play(rule, one, FRESH))
        for rule, offer in market.offers.items()
        for n, one in enumerate(cost_front(offer, demand, question.latency_s), start=1)
    ]


def steps_usd(market: Market, question: Question) -> dict[str, float | None]:
    """What one step of either requirement costs by the tables, USD per hour; None where it cannot be."""

    def least(quality: float, latency_s: float) -> float:
        found = (least_cost(offer, market.demand, quality, latency_s) for offer in market.offers.values())
        return min((one.usd_per_hour for one in found if one), default=np.inf)

    now = least(question.quality, question.latency_s)
    more = {
        f"{QUALITY_STEP:g} of quality more": least(question.quality + QUALITY_STEP, question.latency_s),
        f"{LATENCY_STEP_SHARE:.0%} of latency less": least(
            question.quality, (1 - LATENCY_STEP_SHARE) * question.latency_s
        ),
    }
    return {name: usd - now if np.isfinite(usd - now) else None for name, usd in more.items()}


def write(settings: Settings, question: Question, plans: list[Plan]) -> None:
    """The tables quality_plans and quality_pools of a question."""
    place = {"trace": settings.trace, "question": question.name}
    rows = [plan_row(question, one) for one in plans]
    pools = [row for one in plans for row in pool_rows(one)]
    settings.lake.write("quality_plans", pa.Table.from_pylist(rows, SCHEMAS["quality_plans"]), **place)
    settings.lake.write("quality_pools", pa.Table.from_pylist(pools, SCHEMAS["quality_pools"]), **place)


def plan_row(question: Question, plan: Plan) -> dict[str, Any]:
    """One row of quality_plans."""
    offer, answer = plan.market.offers[plan.rule], plan.answer
    (p95_low, p95_high), (quality_low, quality_high) = plan.served.intervals()
    budget = question.budget_usd_per_hour
    return {
        "plan": plan.name,
        "kind": plan.kind,
        "rule": plan.rule,
        "answers": plan.market.said.answers,
        "judge": plan.market.name,
        "judge_skill": plan.market.judge.skill,
        "thresholds": ", ".join(f"{t:.3f}" for t in offer.thresholds[answer.point]),
        "requests_per_s": plan.market.said.requests_per_s,
        "asked_quality": question.quality,
        "asked_latency_s": question.latency_s,
        "budget_usd_per_hour": None if math.isinf(budget) else budget,
        "usd_per_hour": answer.usd_per_hour,
        "promised_quality": float(offer.quality[answer.point]),
        "promised_p95_s": answer.latency_s,
        "quality": plan.served.quality,
        "quality_low": quality_low,
        "quality_high": quality_high,
        "p95_s": _finite(plan.served.p95_s),
        "p95_low_s": _finite(p95_low),
        "p95_high_s": _finite(p95_high),
    }


def pool_rows(plan: Plan) -> list[dict[str, Any]]:
    """The rows of quality_pools: like replicas, with what their llm does."""
    offer, served = plan.market.offers[plan.rule], plan.served
    serving = np.unique(offer.llm[plan.answer.instances > 0])
    llms = [plan.market.said.llms[code] for code in serving]
    rows = []
    for n in np.flatnonzero(plan.answer.instances):
        shape, count = plan.market.shapes[n], int(plan.answer.instances[n])
        at = llms.index(shape.llm)
        rows.append({
            "plan": plan.name,
            "llm": shape.llm,
            "gpu": shape.gpu,
            "tensor_parallel": shape.tensor_parallel,
            "pipeline_parallel": shape.pipeline_parallel,
            "instances": count,
            "gpus": count * shape.gpus,
            "usd_per_hour": count * float(offer.usd_per_hour[n]),
            "asked_share": served.leg_s[at].size / served.took_s.size,
            "answered_share": float((served.kept == at).mean()),
            "leg_p95_s": float(np.quantile(served.leg_s[at], 0.95)) if served.leg_s[at].size else None,
        })  # fmt: skip
    return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
