"""The plans for quality that policies of a night follow, and how a replay reads them.

`quality` is what our search chooses, `cascadia` and `boute` make theirs (quality_policies.py): of the
same tables, for the peak of the history and requests like its, of instances that the config deploys, all of
them as if in one place. A plan stands in `quality_plans` and `quality_pools`; its question is the day's. A
replay reads it there: who answers as cascades of a config; of policies that hold the plan all day, also
instances as targets, and what is dealt to like instances as their weight.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from datetime import date
from itertools import pairwise

import numpy as np

from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings
from fleetcast.assets.plans.quality_markets import Market, build_market
from fleetcast.assets.plans.quality_policies import QUALITY_POLICIES, first_sufficient_plan
from fleetcast.assets.plans.quality_requirements import QualityPlan, QualityRequirement
from fleetcast.assets.plans.quality_search import choose_quality_plan
from fleetcast.assets.plans.quality_tables import write_quality_plans
from fleetcast.models.quality.judges import load_quality
from fleetcast.models.replay.run import Schedule
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.pool_rows import PoolRow
from fleetcast.models.world.quality_config import QualityConfig
from fleetcast.models.world.replay_config import Cascade
from fleetcast.models.world.toml_dataclasses import ConfigError

PoolKind = tuple[str, str, int, int]  # llm, GPU type, tensor and pipeline parallelism
PEAK_REQUESTS_SQL = (
    "select max(requests) from (select sum(requests) as requests from demand "
    "where trace = $trace and list_contains($past::date[], day) and list_contains($llms, llm) "
    "group by time_bucket(to_minutes($minutes::int), bucket_start))"
)


def nightly_question_name(day: date) -> str:
    """The question under which a night's plans stand in the lake."""
    return f"night_{day}"


def nightly_requirement(said: QualityConfig | None) -> QualityRequirement:
    """What [quality] asks of a night."""
    assert said is not None
    assert said.quality is not None
    assert said.latency_s is not None
    return QualityRequirement(said.quality, said.latency_s)


def plan_nightly_quality(settings: RunSettings, day: date, progress: Progress) -> None:
    """Plan for each policy of the config that follows a plan for quality, and write the plans.

    ConfigError where no plan keeps what [quality] asks, or one asks for more instances than a pool may have.
    """
    if kinds := planned_answer_kinds(settings):
        market = build_nightly_market(settings, day, progress)
        write_nightly_plans(
            settings, day, {kind: make_quality_plan(market, kind, progress) for kind in kinds}
        )


def planned_answer_kinds(settings: RunSettings) -> list[str]:
    """Those of ANSWERS that the config's policies follow; none where [quality] asks nothing."""
    said, rules = settings.config.quality, settings.config.rules
    if said is None or said.quality is None or said.latency_s is None:
        return []
    kinds = (rules[name].answers for name in settings.config.replay.policies)
    return list(dict.fromkeys(kind for kind in kinds if kind is not None))


def write_nightly_plans(settings: RunSettings, day: date, found: Mapping[str, QualityPlan]) -> None:
    """Write a night's plans, each under the names of the policies that follow it."""
    rules = settings.config.rules
    plans = [
        found[kind]._replace(name=name)
        for name in settings.config.replay.policies
        if (kind := rules[name].answers) is not None
    ]
    for plan in plans:
        if rules[plan.name].plan == "standing":
            require_pool_room(settings, plan)
    write_quality_plans(
        settings, nightly_requirement(settings.config.quality), plans, nightly_question_name(day)
    )


def build_nightly_market(settings: RunSettings, day: date, progress: Progress) -> Market:
    """What a night's plans are made of: the history's requests at their peak, the GPUs of the place."""
    said = settings.config.quality
    assert said is not None
    past, minutes = settings.history(day), settings.config.forecast.bucket_minutes
    asked = {"trace": settings.trace, "past": past, "llms": list(said.llms), "minutes": minutes}
    peak = settings.lake.sql(PEAK_REQUESTS_SQL, **asked).to_pydict().popitem()[1][0]
    if not peak:
        raise ConfigError(
            f"The history of {day} has no request for {', '.join(said.llms)}, which plans for quality are "
            "made for. Name llms in [quality] that the trace asks for."
        )
    room, caps = Counter[str](), Counter[str]()
    for row in settings.grid.pools:
        room[row.kind.gpu] += row.max_instances * row.kind.gpus
    for region in settings.catalogue.regions.values():
        caps.update(region.cap_gpus)
    there = [pool for own in settings.config.fleet.deployments.values() for pool in own]
    night = dataclasses.replace(
        said,
        requests_per_s=float(peak) / (60 * minutes),
        gpus={gpu: min(count, caps[gpu]) for gpu, count in room.items()},
        tensor_parallel=tuple(sorted({pool.tensor_parallel for pool in there})),
        pipeline_parallel=tuple(sorted({pool.pipeline_parallel for pool in there})),
    )
    own = dataclasses.replace(settings, config=dataclasses.replace(settings.config, quality=night))
    return build_market(own, progress, past=past)


def make_quality_plan(market: Market, kind: str, progress: Progress, more: float = 0.0) -> QualityPlan:
    """A plan of one of ANSWERS; where none of its own keeps what is asked, its dearest.

    It is asked for so much `more` quality than [quality] asks.
    """
    question = nightly_requirement(market.said)
    question = question._replace(quality=question.quality + more)
    if kind == "quality":
        return choose_quality_plan(market, question, progress)
    found = first_sufficient_plan(market, question, kind, QUALITY_POLICIES[kind](market, question))
    if found is None:
        raise ConfigError(
            f"{kind} has no plan for quality {question.quality:g} within {question.latency_s:g} s at "
            f"{market.said.requests_per_s:g} requests/s. Ask for less in [quality], or add GPUs."
        )
    return found


def require_pool_room(settings: RunSettings, plan: QualityPlan) -> None:
    """Refuse a plan that the replay could not hold."""
    room = {pool_kind(row): row.max_instances for row in settings.grid.pools if row.max_instances}
    for shape, count in zip(plan.market.shapes, plan.answer.instances, strict=True):
        if count > (most := room.get((*shape,), 0)):
            raise ConfigError(
                f"{plan.name} wants {count} instances of {shape}; {settings.config.file.name} has room for "
                f"{most}. Raise its max_instances."
            )


def pool_kind(row: PoolRow) -> PoolKind:
    """What an instance of a pool is."""
    kind = row.kind
    return kind.llm, kind.gpu, kind.tensor_parallel, kind.pipeline_parallel


def read_nightly_plan(
    settings: RunSettings, day: date, policy: str
) -> tuple[Mapping, dict[PoolKind, Mapping]]:
    """A policy's plan of a night: its row of quality_plans, and those of its pools."""
    asked = {"trace": settings.trace, "question": nightly_question_name(day), "plan": policy}
    rows, of_pools = (
        settings.lake.sql(
            f"from {table} where trace = $trace and question = $question and plan = $plan", **asked
        ).to_pylist()
        for table in ("quality_plans", "quality_pools")
    )
    if not rows:
        raise ConfigError(
            f"{policy} has no plan for {day}. Name it in [replay] policies of {settings.config.file.name} "
            f"and make the day again: fleetcast nightly --date {day}"
        )
    names = ("llm", "gpu", "tensor_parallel", "pipeline_parallel")
    return rows[0], {tuple(row[name] for name in names): row for row in of_pools}


def apply_quality_plan(settings: RunSettings, day: date, policy: str) -> RunSettings:
    """The settings under which a policy is planned and replayed: who answers, as its plan says it.

    What is dealt to whom as well, where it holds the instances of that plan.
    """
    config, rule = settings.config, settings.config.rules[policy]
    if rule.answers is None or config.quality is None:
        return settings
    plan, of_pools = read_nightly_plan(settings, day, policy)
    cascade = cascade_from_plan(plan, of_pools, config.quality)
    replay = dataclasses.replace(config.replay, cascades=dict.fromkeys(config.quality.llms, cascade))
    config = dataclasses.replace(config, replay=replay)
    if rule.plan != "standing":
        return dataclasses.replace(settings, config=config)

    def held(llm: str, pool: Deployment) -> Deployment:
        row = of_pools.get((llm, pool.gpu, pool.tensor_parallel, pool.pipeline_parallel))
        if row is None:
            return dataclasses.replace(pool, instances_at_start=0)
        return dataclasses.replace(pool, weight=row["load_share"], instances_at_start=row["instances"])

    own = {llm: tuple(held(llm, pool) for pool in its) for llm, its in config.fleet.deployments.items()}
    fleet = dataclasses.replace(config.fleet, deployments=own)
    return dataclasses.replace(settings, config=dataclasses.replace(config, fleet=fleet))


def cascade_from_plan(plan: Mapping, of_pools: Mapping[PoolKind, Mapping], said: QualityConfig) -> Cascade:
    """Who answers a request under a plan: of the llms that serve, the last stands for those above it."""
    serving = {llm for llm, *_ in of_pools}
    places = [place for place, llm in enumerate(said.llms) if llm in serving]
    llms = tuple(said.llms[place] for place in places)
    limits = [float(text) for text in plan["thresholds"].split(", ")]
    by = {"judge_llm": plan["judge_llm"], "shadow_share": plan["shadow_share"]}
    if plan["rule"] == "cascade":
        known = load_quality().judges.get(plan["judge"])
        outside_s = known.seconds if known is not None and plan["judge_llm"] is None else 0.0
        shares = tuple(limits[: len(llms) - 1])
        return Cascade(llms, shares, outside_s, rubric_tokens=said.rubric_tokens, **by)
    beyond = [1.0, *(1 - limits[place] for place in places[:-1])]
    shares = tuple(after / before if before else 0.0 for before, after in pairwise(beyond))
    return Cascade(llms, shares, 0.0, at_arrival=True, rubric_tokens=said.rubric_tokens, **by)


def standing_schedule(settings: RunSettings, day: date, policy: str) -> Schedule:
    """What a policy is given on a day: its instances at every hour, and the thresholds of its plan."""
    _, of_pools = read_nightly_plan(settings, day, policy)
    held = [
        of_pools[pool_kind(row)]["instances"] if row.max_instances and pool_kind(row) in of_pools else 0
        for row in settings.grid.pools
    ]
    own = apply_quality_plan(settings, day, policy)
    below = make_rules(own.catalogue, own.config.replay, "follow").go_on_below
    targets = np.array(held, np.float64)
    rows = np.tile(targets, (HOURS_OF_DAY, 1))
    return Schedule(rows, None, targets, go_on_below=np.tile(below, (HOURS_OF_DAY, 1)))
