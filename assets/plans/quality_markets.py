"""What a plan for quality is chosen from, for one judge: offers by rule, shapes, questions to play."""

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans.quality_offers import JudgeSetup, measure_quality_offer, routing_points
from fleetcast.assets.plans.quality_questions import has_router, sample_questions
from fleetcast.models.latency.batch_extension import extend_catalogue
from fleetcast.models.plan.quality_milp import PointPlan, QualityDemand, QualityOffer, replica_capacity_per_s
from fleetcast.models.quality.answers import SELECTION_RULES, JudgedAnswers
from fleetcast.models.quality.judges import Judge, load_quality
from fleetcast.models.trials.latency_curves import ReplicaShape, add_roofline_profiles, feasible_shapes
from fleetcast.models.trials.model_routing import (
    RoutingOutcome,
    RoutingPlan,
    poisson_arrivals_s,
    replay_routing_plan,
    weighted_pools,
)
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_overrides import override_catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.quality_config import QualityConfig
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

MIN_CASCADE_TTFT_S = 1.0  # a tier whose first token is due so soon cannot wait for two answers
EVALUATION_SEED = 1  # of two seeds of arrivals: the other one chooses the plan


class Market(NamedTuple):
    """One judge, and all that a plan may be made of."""

    name: str  # of the judge
    judging: JudgeSetup
    offers: Mapping[str, QualityOffer]  # by rule
    shapes: list[ReplicaShape]
    demand: QualityDemand
    selection_set: JudgedAnswers  # questions on which thresholds and plans are chosen
    evaluation_set: JudgedAnswers  # others, on which they are judged
    catalogue: Catalogue
    config: RunConfig
    said: QualityConfig
    source: str  # whose answers, whose lengths

    def play(self, rule: str, plan: PointPlan, seed: int) -> RoutingOutcome:
        """Replay a plan whole; with FRESH on questions and arrivals that it was not chosen on."""
        offer = self.offers[rule]
        pools = weighted_pools(
            self.shapes, plan.instances, replica_capacity_per_s(offer, plan.point, plan.within_s)
        )
        limits, own = tuple(offer.thresholds[plan.point].tolist()), self.judging
        by = (own.judge.seconds, own.llm, own.rubric_tokens, own.shadow_share)
        serving = RoutingPlan(rule, limits, pools, *by)
        rows = (self.evaluation_set if seed == EVALUATION_SEED else self.selection_set).rows(
            slice(0, self.said.requests)
        )
        arrival_s = poisson_arrivals_s(self.said.requests, self.said.requests_per_s, seed)
        return replay_routing_plan(serving, rows, arrival_s, self.catalogue, self.config)


def require_quality_config(settings: RunSettings, world: Catalogue) -> QualityConfig:
    """The [quality] of a config; ConfigError where there is none, or it names what nobody knows."""
    said, file = settings.config.quality, settings.config.file.name
    where = f"{file} [quality]"
    if said is None:
        raise ConfigError(
            f"{file} has no [quality], which says whose answers will do. Use --config quality, or add one."
        )
    require_known(said.tier, world.tiers, "tier", where)
    for gpu in said.gpus:
        require_known(gpu, world.gpus, "gpu", where)
    for llm in said.llms:
        require_known(llm, world.llms, "llm", where)
    if len(set(said.llms)) < max(len(said.llms), 2):
        named = ", ".join(said.llms) or "none"
        raise ConfigError(f"{where}: llms are {named}; it needs two or more, each once.")
    if said.judge_llm is not None:
        require_known(said.judge_llm, world.llms, "llm", f"{where} judge_llm")
        if said.judge_llm in said.llms:
            raise ConfigError(
                f"{where}: judge_llm = {said.judge_llm!r} would judge its own answers. Name an llm that does "
                "not answer here, or drop judge_llm: then the judge is a service outside."
            )
        if said.rule == "route":
            raise ConfigError(
                f"{where}: rule = 'route' with judge_llm = {said.judge_llm!r}, which judges answers: a "
                "router has none to read. Use rule = 'cascade', or drop judge_llm."
            )
    ttft_s = world.tiers[said.tier].ttft_slo_s
    if said.rule == "cascade" and ttft_s is not None and ttft_s <= MIN_CASCADE_TTFT_S:
        raise ConfigError(
            f"{where}: rule = 'cascade' for {said.tier}, whose first token is due in {ttft_s:g} s: nobody "
            "sees a token before a draft was judged. Use rule = 'route', or another tier."
        )
    return said


def allowed_routing_rules(said: QualityConfig, world: Catalogue, has_router: bool) -> tuple[str, ...]:
    """The rules that may be planned: no cascade where the tier is too quick, no route without a router.

    An llm of ours that only judges routes nothing.
    """
    ttft_s = world.tiers[said.tier].ttft_slo_s
    asked = SELECTION_RULES if said.rule == "both" else (said.rule,)
    can = {"cascade": ttft_s is None or ttft_s > MIN_CASCADE_TTFT_S, "route": has_router}
    if found := tuple(rule for rule in asked if can[rule]):
        return found
    raise ConfigError(
        f"No router: {said.judge_llm or said.judge} judges answers only, and nothing says how hard questions "
        "look. Use rule = 'cascade' and a tier that can wait, land a column hardness, or name a judge with a "
        "skill."
    )


def judge_setup(said: QualityConfig, judge: Judge, name: str) -> JudgeSetup:
    """The judge with its llm, whose pool is its time and price; one beside the config's is outside."""
    own = said.judge_llm if name == said.judge else None
    if own is not None:
        judge = dataclasses.replace(judge, seconds=0.0, usd_per_1000=0.0)
    return JudgeSetup(judge, own, said.rubric_tokens if own else 0, said.shadow_share)


def deployed_shapes(config: RunConfig) -> set[ReplicaShape]:
    """What the config's instances are."""
    return {
        ReplicaShape(llm, pool.gpu, pool.tensor_parallel, pool.pipeline_parallel)
        for llm, own in config.fleet.deployments.items()
        for pool in own
    }


def build_market(
    settings: RunSettings, progress: Progress, judge: str | None = None, past: Sequence[date] | None = None
) -> Market:
    """Measure all that may be had with a judge, by default that of the config.

    `past`: for a night, the days whose requests are known; then what may stand is what the config deploys.
    """
    quality = load_quality()
    world = override_catalogue(load_catalogue(), settings.config.catalogue, settings.config.file.name)
    said = require_quality_config(settings, world)
    name = judge or said.judge
    questions = sample_questions(settings, quality, said, name, 2 * said.requests, past)
    chosen_on, judged_on = questions.answers.halves()
    judging = judge_setup(said, questions.judge, name)
    llms = [*([judging.llm] if judging.llm else []), *said.llms]
    longest = int((chosen_on.input_tokens[:, None] + chosen_on.output_tokens).max())
    longest += judging.rubric_tokens if judging.llm else 0
    gpus = [gpu for gpu, count in said.gpus.items() if count]
    degrees = (said.tensor_parallel, said.pipeline_parallel)
    shapes = feasible_shapes(llms, gpus, world, settings.config, longest, *degrees)
    shapes = [shape for shape in shapes if shape.gpus <= said.gpus[shape.gpu]]
    if past is not None:
        shapes = [shape for shape in shapes if shape in deployed_shapes(settings.config)]
    world = add_roofline_profiles(world, shapes)
    deployed: dict[str, tuple] = {
        llm: tuple(shape.deployment for shape in shapes if shape.llm == llm) for llm in llms
    }
    fleet = dataclasses.replace(settings.config.fleet, deployments=deployed)
    world = extend_catalogue(world, fleet, settings.config.file.name)
    rules = allowed_routing_rules(said, world, judging.llm is None and has_router(chosen_on))
    grids = {rule: routing_points(chosen_on, rule, said.points) for rule in rules}
    served_by = (shapes, world, settings.config, judging, progress)
    offers = {rule: measure_quality_offer(chosen_on, rule, grid, *served_by) for rule, grid in grids.items()}
    caps = np.array([said.gpus.get(gpu, 0) for gpu in world.gpus])
    demand = QualityDemand(said.requests_per_s, caps)
    asked_on = (demand, chosen_on, judged_on, world, settings.config, said, questions.source)
    return Market(name, judging, offers, shapes, *asked_on)
