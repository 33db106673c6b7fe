"""The choices of a quality plan for one judge: offers by routing rule, replica shapes, test questions."""

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

MIN_CASCADE_TTFT_S = 1.0  # a tier with a TTFT target up to this cannot wait for two answers
EVALUATION_SEED = 1  # seed of the arrivals that evaluate a plan; other seeds select it


class Market(NamedTuple):
    """One judge, and everything that a plan can consist of."""

    name: str  # of the judge
    judging: JudgeSetup
    offers: Mapping[str, QualityOffer]  # by routing rule
    shapes: list[ReplicaShape]
    demand: QualityDemand
    selection_set: JudgedAnswers  # questions that select thresholds and plans
    evaluation_set: JudgedAnswers  # other questions, which evaluate them
    catalogue: Catalogue
    config: RunConfig
    quality_config: QualityConfig
    source: str  # describes the origin of the answers and the lengths

    def play(self, rule: str, plan: PointPlan, seed: int) -> RoutingOutcome:
        """Replay a whole plan; EVALUATION_SEED takes questions and arrivals that did not select it."""
        offer = self.offers[rule]
        pools = weighted_pools(
            self.shapes, plan.instances, replica_capacity_per_s(offer, plan.point, plan.within_s)
        )
        thresholds, judging = tuple(offer.thresholds[plan.point].tolist()), self.judging
        judge = (judging.judge.seconds, judging.llm, judging.rubric_tokens, judging.shadow_share)
        routing = RoutingPlan(rule, thresholds, pools, *judge)
        requests = self.quality_config.requests
        answers = self.evaluation_set if seed == EVALUATION_SEED else self.selection_set
        arrival_s = poisson_arrivals_s(requests, self.quality_config.requests_per_s, seed)
        return replay_routing_plan(
            routing, answers.rows(slice(0, requests)), arrival_s, self.catalogue, self.config
        )


def require_quality_config(settings: RunSettings, world: Catalogue) -> QualityConfig:
    """Return the [quality] section of a config; ConfigError where there is none or it is invalid."""
    quality, file = settings.config.quality, settings.config.file.name
    where = f"{file} [quality]"
    if quality is None:
        raise ConfigError(
            f"{file} has no [quality] section, which names the llms and their answers. Use --config quality, "
            "or add one."
        )
    require_known(quality.tier, world.tiers, "tier", where)
    for gpu in quality.gpus:
        require_known(gpu, world.gpus, "gpu", where)
    for llm in quality.llms:
        require_known(llm, world.llms, "llm", where)
    if len(set(quality.llms)) < max(len(quality.llms), 2):
        named = ", ".join(quality.llms) or "none"
        raise ConfigError(f"{where}: llms are {named}; it needs two or more, each once.")
    if quality.judge_llm is not None:
        require_known(quality.judge_llm, world.llms, "llm", f"{where} judge_llm")
        if quality.judge_llm in quality.llms:
            raise ConfigError(
                f"{where}: judge_llm = {quality.judge_llm!r} would judge its own answers. Name an llm that "
                "does not answer here, or drop judge_llm: then the judge is an external service."
            )
        if quality.rule == "route":
            raise ConfigError(
                f"{where}: rule = 'route' with judge_llm = {quality.judge_llm!r}, which judges answers: a "
                "router has none to read. Use rule = 'cascade', or drop judge_llm."
            )
    ttft_s = world.tiers[quality.tier].ttft_slo_s
    if quality.rule == "cascade" and ttft_s is not None and ttft_s <= MIN_CASCADE_TTFT_S:
        raise ConfigError(
            f"{where}: rule = 'cascade' for {quality.tier}, whose first token is due in {ttft_s:g} s: a "
            "cascade sends no token before a draft was judged. Use rule = 'route', or another tier."
        )
    return quality


def allowed_routing_rules(quality: QualityConfig, world: Catalogue, has_router: bool) -> tuple[str, ...]:
    """Return the rules that can be planned; ConfigError where there is none.

    A cascade needs a tier with a long enough TTFT target, a route needs a router. A judge that is a deployed
    llm does not route.
    """
    ttft_s = world.tiers[quality.tier].ttft_slo_s
    rules = SELECTION_RULES if quality.rule == "both" else (quality.rule,)
    is_possible = {"cascade": ttft_s is None or ttft_s > MIN_CASCADE_TTFT_S, "route": has_router}
    if allowed := tuple(rule for rule in rules if is_possible[rule]):
        return allowed
    raise ConfigError(
        f"No router: {quality.judge_llm or quality.judge} only judges answers, and the difficulty of "
        "questions is not known. Use rule = 'cascade' and a tier that can wait, land a column hardness, or "
        "name a judge with a skill."
    )


def judge_setup(quality: QualityConfig, judge: Judge, name: str) -> JudgeSetup:
    """Return the judge with its llm, whose pool sets its time and price.

    A judge other than the config's is an external service.
    """
    llm = quality.judge_llm if name == quality.judge else None
    if llm is not None:
        judge = dataclasses.replace(judge, seconds=0.0, usd_per_1000=0.0)
    return JudgeSetup(judge, llm, quality.rubric_tokens if llm else 0, quality.shadow_share)


def deployed_shapes(config: RunConfig) -> set[ReplicaShape]:
    """Return the replica shapes that the config deploys."""
    return {
        ReplicaShape(llm, pool.gpu, pool.tensor_parallel, pool.pipeline_parallel)
        for llm, pools in config.fleet.deployments.items()
        for pool in pools
        if pool.data_parallel_size == 1
    }


def build_market(
    settings: RunSettings, progress: Progress, judge: str | None = None, past: Sequence[date] | None = None
) -> Market:
    """Measure every choice with a judge, by default the config's.

    `past`: for a nightly run, the days whose requests are known; the plan then uses only shapes that the
    config deploys.
    """
    judges = load_quality()
    world = override_catalogue(load_catalogue(), settings.config.catalogue, settings.config.file.name)
    quality = require_quality_config(settings, world)
    name = judge or quality.judge
    questions = sample_questions(settings, judges, quality, name, 2 * quality.requests, past)
    selection, evaluation = questions.answers.halves()
    judging = judge_setup(quality, questions.judge, name)
    llms = [*([judging.llm] if judging.llm else []), *quality.llms]
    longest = int((selection.input_tokens[:, None] + selection.output_tokens).max())
    longest += judging.rubric_tokens if judging.llm else 0
    gpus = [gpu for gpu, count in quality.gpus.items() if count]
    degrees = (quality.tensor_parallel, quality.pipeline_parallel)
    shapes = feasible_shapes(llms, gpus, world, settings.config, longest, *degrees)
    shapes = [shape for shape in shapes if shape.gpus <= quality.gpus[shape.gpu]]
    if past is not None:
        shapes = [shape for shape in shapes if shape in deployed_shapes(settings.config)]
    world = add_roofline_profiles(world, shapes)
    deployed: dict[str, tuple] = {
        llm: tuple(shape.deployment for shape in shapes if shape.llm == llm) for llm in llms
    }
    fleet = dataclasses.replace(settings.config.fleet, deployments=deployed)
    world = extend_catalogue(world, fleet, settings.config.file.name)
    rules = allowed_routing_rules(quality, world, judging.llm is None and has_router(selection))
    grids = {rule: routing_points(selection, rule, quality.points) for rule in rules}
    replica_inputs = (shapes, world, settings.config, judging, progress)
    offers = {
        rule: measure_quality_offer(selection, rule, grid, *replica_inputs) for rule, grid in grids.items()
    }
    caps = np.array([quality.gpus.get(gpu, 0) for gpu in world.gpus])
    demand = QualityDemand(quality.requests_per_s, caps)
    return Market(
        name,
        judging,
        offers,
        shapes,
        demand,
        selection,
        evaluation,
        world,
        settings.config,
        quality,
        questions.source,
    )
