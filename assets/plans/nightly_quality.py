"""Make the quality plans of a nightly run's policies, and apply them to a replay.

`quality` is the plan of fleetcast's search; `cascadia` and `boute` make their own (quality_policies.py). All
use the same tables, the peak load and the requests of the history, and the instances that the config deploys,
as if these were in one place. A plan is stored in `quality_plans` and `quality_pools` under the day's
question. A replay reads it from there: the model routing becomes the cascades of a config. For policies that
keep the plan all day, the instances become targets, and the load shares of equal instances become weights.
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
    """Return the name in the lake of the requirement (`question`) of a day's plans."""
    return f"night_{day}"


def nightly_requirement(config: QualityConfig | None) -> QualityRequirement:
    """Return the requirement in [quality] for a nightly run."""
    assert config is not None
    assert config.quality is not None
    assert config.latency_s is not None
    return QualityRequirement(config.quality, config.latency_s)


def plan_nightly_quality(settings: RunSettings, day: date, progress: Progress) -> None:
    """Write a quality plan for each policy of the config that uses one.

    ConfigError where no plan meets [quality], or a plan needs more instances than the pools can have.
    """
    if kinds := planned_answer_kinds(settings):
        market = build_nightly_market(settings, day, progress)
        write_nightly_plans(
            settings, day, {kind: make_quality_plan(market, kind, progress) for kind in kinds}
        )


def planned_answer_kinds(settings: RunSettings) -> list[str]:
    """Return the kinds of quality plans that the config's policies use; none without a requirement."""
    quality, rules = settings.config.quality, settings.config.rules
    if quality is None or quality.quality is None or quality.latency_s is None:
        return []
    kinds = (rules[name].answers for name in settings.config.replay.policies)
    return list(dict.fromkeys(kind for kind in kinds if kind is not None))


def write_nightly_plans(settings: RunSettings, day: date, plans_by_kind: Mapping[str, QualityPlan]) -> None:
    """Write a day's plans, each under the names of the policies that use it."""
    rules = settings.config.rules
    plans = [
        plans_by_kind[kind]._replace(name=name)
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
    """Return the choices of a day's plans: the history's requests at their peak load, the config's GPUs.

    ConfigError where the history has no request for the llms of [quality].
    """
    quality = settings.config.quality
    assert quality is not None
    past, minutes = settings.history(day), settings.config.forecast.bucket_minutes
    parameters = {"trace": settings.trace, "past": past, "llms": list(quality.llms), "minutes": minutes}
    peak = settings.lake.sql(PEAK_REQUESTS_SQL, **parameters).to_pydict().popitem()[1][0]
    if not peak:
        raise ConfigError(
            f"The history of {day} has no request for {', '.join(quality.llms)}, the llms of the quality "
            "plans. Name llms in [quality] that have requests in the trace."
        )
    room, caps = Counter[str](), Counter[str]()
    for row in settings.grid.pools:
        room[row.kind.gpu] += row.max_instances * row.kind.gpus
    for region in settings.catalogue.regions.values():
        caps.update(region.cap_gpus)
    deployed = [pool for pools in settings.config.fleet.deployments.values() for pool in pools]
    nightly = dataclasses.replace(
        quality,
        requests_per_s=float(peak) / (60 * minutes),
        gpus={gpu: min(count, caps[gpu]) for gpu, count in room.items()},
        tensor_parallel=tuple(sorted({pool.tensor_parallel for pool in deployed})),
        pipeline_parallel=tuple(sorted({pool.pipeline_parallel for pool in deployed})),
    )
    settings = settings.with_config(quality=nightly)
    return build_market(settings, progress, past=past)


def make_quality_plan(market: Market, kind: str, progress: Progress, more: float = 0.0) -> QualityPlan:
    """Return the plan of a kind, for the quality of [quality] plus `more`.

    Where no plan of another planner meets the requirement, it is its most expensive one. ConfigError where
    there is none.
    """
    requirement = nightly_requirement(market.quality_config)
    requirement = requirement._replace(quality=requirement.quality + more)
    if kind == "quality":
        return choose_quality_plan(market, requirement, progress)
    plan = first_sufficient_plan(market, requirement, kind, QUALITY_POLICIES[kind](market, requirement))
    if plan is None:
        raise ConfigError(
            f"{kind} has no plan for quality {requirement.quality:g} within {requirement.latency_s:g} s at "
            f"{market.quality_config.requests_per_s:g} requests/s. Lower the requirement in [quality], or "
            "add GPUs."
        )
    return plan


def require_pool_room(settings: RunSettings, plan: QualityPlan) -> None:
    """Raise ConfigError for a plan with more instances than the config's pools can have."""
    room = {pool_kind(row): row.max_instances for row in settings.grid.pools if row.max_instances}
    for shape, count in zip(plan.market.shapes, plan.answer.instances, strict=True):
        if count > (limit := room.get((*shape,), 0)):
            raise ConfigError(
                f"{plan.name} needs {count} instances of {shape}; {settings.config.file.name} has room for "
                f"{limit}. Raise its max_instances."
            )


def pool_kind(row: PoolRow) -> PoolKind:
    """Return llm, GPU type, tensor and pipeline parallelism of a pool's instances."""
    kind = row.kind
    return kind.llm, kind.gpu, kind.tensor_parallel, kind.pipeline_parallel


def read_nightly_plan(
    settings: RunSettings, day: date, policy: str
) -> tuple[Mapping, dict[PoolKind, Mapping]]:
    """Return a policy's plan of a day: its row of quality_plans, and its rows of quality_pools by pool kind.

    ConfigError where there is none.
    """
    key = {"trace": settings.trace, "question": nightly_question_name(day), "plan": policy}
    rows, pools = (
        settings.lake.sql(
            f"from {table} where trace = $trace and question = $question and plan = $plan", **key
        ).to_pylist()
        for table in ("quality_plans", "quality_pools")
    )
    if not rows:
        raise ConfigError(
            f"{policy} has no plan for {day}. Name it in [replay] policies of {settings.config.file.name} "
            f"and make the day again: {settings.command(f'nightly --date {day}')}"
        )
    names = ("llm", "gpu", "tensor_parallel", "pipeline_parallel")
    return rows[0], {tuple(row[name] for name in names): row for row in pools}


def apply_quality_plan(settings: RunSettings, day: date, policy: str) -> RunSettings:
    """Return the settings to plan and replay a policy with: the model routing of its quality plan.

    Where the policy keeps the plan's instances all day, the settings also have its load shares as weights.
    """
    config, rule = settings.config, settings.config.rules[policy]
    if rule.answers is None or config.quality is None:
        return settings
    plan, pools = read_nightly_plan(settings, day, policy)
    cascade = cascade_from_plan(plan, pools, config.quality)
    replay = dataclasses.replace(config.replay, cascades=dict.fromkeys(config.quality.llms, cascade))
    config = dataclasses.replace(config, replay=replay)
    if rule.plan != "standing":
        return dataclasses.replace(settings, config=config)

    def planned_pool(llm: str, pool: Deployment) -> Deployment:
        row = pools.get((llm, pool.gpu, pool.tensor_parallel, pool.pipeline_parallel))
        if row is None:
            return dataclasses.replace(pool, instances_at_start=0)
        return dataclasses.replace(pool, weight=row["load_share"], instances_at_start=row["instances"])

    deployments = {
        llm: tuple(planned_pool(llm, pool) for pool in deployed)
        for llm, deployed in config.fleet.deployments.items()
    }
    fleet = dataclasses.replace(config.fleet, deployments=deployments)
    return dataclasses.replace(settings, config=dataclasses.replace(config, fleet=fleet))


def cascade_from_plan(plan: Mapping, pools: Mapping[PoolKind, Mapping], quality: QualityConfig) -> Cascade:
    """Return the model routing of a plan; the last serving llm takes the requests of the llms above it."""
    serving = {llm for llm, *_ in pools}
    places = [place for place, llm in enumerate(quality.llms) if llm in serving]
    llms = tuple(quality.llms[place] for place in places)
    thresholds = [float(text) for text in plan["thresholds"].split(", ")]
    judge = {"judge_llm": plan["judge_llm"], "shadow_share": plan["shadow_share"]}
    if plan["rule"] == "cascade":
        known = load_quality().judges.get(plan["judge"])
        outside_s = known.seconds if known is not None and plan["judge_llm"] is None else 0.0
        shares = tuple(thresholds[: len(llms) - 1])
        return Cascade(llms, shares, outside_s, rubric_tokens=quality.rubric_tokens, **judge)
    beyond = [1.0, *(1 - thresholds[place] for place in places[:-1])]
    shares = tuple(after / before if before else 0.0 for before, after in pairwise(beyond))
    return Cascade(llms, shares, 0.0, at_arrival=True, rubric_tokens=quality.rubric_tokens, **judge)


def standing_schedule(settings: RunSettings, day: date, policy: str) -> Schedule:
    """Return the schedule of a policy that keeps its quality plan all day: instances, thresholds by hour."""
    _, pools = read_nightly_plan(settings, day, policy)
    instances = [
        pools[pool_kind(row)]["instances"] if row.max_instances and pool_kind(row) in pools else 0
        for row in settings.grid.pools
    ]
    routed = apply_quality_plan(settings, day, policy)
    below = make_rules(routed.catalogue, routed.config.replay, "follow").go_on_below
    targets = np.array(instances, np.float64)
    rows = np.tile(targets, (HOURS_OF_DAY, 1))
    return Schedule(rows, None, targets, go_on_below=np.tile(below, (HOURS_OF_DAY, 1)))
