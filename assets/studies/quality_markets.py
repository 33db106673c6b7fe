"""What a plan for quality is chosen from, for one judge: offers by rule, shapes, questions to play."""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from assets.lake.settings import Progress, Settings
from assets.studies.offers import offer_of, points_of
from models.latency.reach import with_reach
from models.plan.quality import Answer, Demand, Offer, carries
from models.quality.answers import RULES, Answers
from models.quality.join import made_up
from models.quality.judges import Judge, QualityCatalogue, judged_by, load_quality
from models.replay.answering import Served, Serving, arrivals_s, pools_of, served
from models.replay.performance import Shape, shapes_of, with_estimates
from models.world.catalogue import Catalogue, load_catalogue
from models.world.changes import changed_catalogue
from models.world.config import Config
from models.world.quality import QualityConfig
from models.world.reading import ConfigError, require_known

LEAST_TTFT_S = 1.0  # a tier whose first token is due so soon cannot wait for two answers
FRESH = 1  # of two seeds of arrivals: the other one chooses the plan


class Market(NamedTuple):
    """One judge, and all that a plan may be made of."""

    name: str  # of the judge
    judge: Judge
    offers: Mapping[str, Offer]  # by rule
    shapes: list[Shape]
    demand: Demand
    chosen_on: Answers  # questions on which thresholds and plans are chosen
    judged_on: Answers  # others, on which they are judged
    catalogue: Catalogue
    config: Config
    said: QualityConfig

    def play(self, rule: str, plan: Answer, seed: int) -> Served:
        """Replay a plan whole; with FRESH on questions and arrivals that it was not chosen on."""
        offer = self.offers[rule]
        pools = pools_of(self.shapes, plan.instances, carries(offer, plan.point, plan.within_s))
        serving = Serving(rule, tuple(offer.thresholds[plan.point].tolist()), pools, self.judge.seconds)
        rows = (self.judged_on if seed == FRESH else self.chosen_on).rows(slice(0, self.said.requests))
        arrival_s = arrivals_s(self.said.requests, self.said.requests_per_s, seed)
        return served(serving, rows, arrival_s, self.catalogue, self.config)


def checked(settings: Settings, quality: QualityCatalogue, world: Catalogue) -> QualityConfig:
    """The [quality] of a config; ConfigError where there is none, or it names what nobody knows."""
    said, file = settings.config.quality, settings.config.file.name
    where = f"{file} [quality]"
    if said is None:
        raise ConfigError(
            f"{file} has no [quality], which says whose answers will do. Use --config quality, or add one."
        )
    require_known(said.answers, quality.answers, "answers", where)
    require_known(said.judge, quality.judges, "judge", where)
    require_known(said.tier, world.tiers, "tier", where)
    for gpu in said.gpus:
        require_known(gpu, world.gpus, "gpu", where)
    for llm in said.llms:
        require_known(llm, quality.answers[said.answers].llms, "llm", f"{where} answers {said.answers}")
        require_known(llm, world.llms, "llm", where)
    if len(set(said.llms)) < max(len(said.llms), 2):
        named = ", ".join(said.llms) or "none"
        raise ConfigError(f"{where}: llms are {named}; it needs two or more, each once.")
    ttft_s = world.tiers[said.tier].ttft_slo_s
    if said.rule == "cascade" and ttft_s is not None and ttft_s <= LEAST_TTFT_S:
        raise ConfigError(
            f"{where}: rule = 'cascade' for {said.tier}, whose first token is due in {ttft_s:g} s: nobody "
            "sees a token before a draft was judged. Use rule = 'route', or another tier."
        )
    return said


def rules_of(said: QualityConfig, world: Catalogue) -> tuple[str, ...]:
    """The rules that may be planned: of both only the router where the tier is too quick for a cascade."""
    ttft_s = world.tiers[said.tier].ttft_slo_s
    if said.rule != "both":
        return (said.rule,)
    return ("route",) if ttft_s is not None and ttft_s <= LEAST_TTFT_S else RULES


def market_of(settings: Settings, progress: Progress, judge: str | None = None) -> Market:
    """Measure all that may be had with a judge, by default that of the config."""
    quality = load_quality()
    world = changed_catalogue(load_catalogue(), settings.config.catalogue, settings.config.file.name)
    said = checked(settings, quality, world)
    name = judge or said.judge
    require_known(name, quality.judges, "judge", f"{settings.config.file.name} [quality]")
    model, seed = quality.answers[said.answers], settings.config.trace.seed
    drawn = made_up(model, quality.judges[name], 2 * said.requests, seed).of(said.llms)
    rng = np.random.default_rng([seed, 0x1D6E])
    chosen_on, judged_on = judged_by(drawn, quality.judges[name], rng).halves()  # of these llms' answers
    longest = int((chosen_on.input_tokens[:, None] + chosen_on.output_tokens).max())
    gpus = [gpu for gpu, count in said.gpus.items() if count]
    shapes = shapes_of(
        said.llms, gpus, world, settings.config, longest, said.tensor_parallel, said.pipeline_parallel
    )
    shapes = [shape for shape in shapes if shape.gpus <= said.gpus[shape.gpu]]
    world = with_estimates(world, shapes)
    deployed: dict[str, tuple] = {
        llm: tuple(shape.deployment for shape in shapes if shape.llm == llm) for llm in said.llms
    }
    fleet = dataclasses.replace(settings.config.fleet, deployments=deployed)
    world = with_reach(world, fleet, settings.config.file.name)
    offers = {
        rule: offer_of(
            chosen_on,
            rule,
            points_of(chosen_on, rule, said.points),
            shapes,
            world,
            settings.config,
            quality.judges[name],
            progress,
        )
        for rule in rules_of(said, world)
    }
    caps = np.array([said.gpus.get(gpu, 0) for gpu in world.gpus])
    demand = Demand(said.requests_per_s, caps)
    return Market(
        name, quality.judges[name], offers, shapes, demand, chosen_on, judged_on, world, settings.config, said
    )
