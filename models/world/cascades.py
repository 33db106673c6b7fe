"""Cascades: the llms that serve a request for an llm one after the other, and checks of their config."""

from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.replay_config import Cascade
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known


def stages_per_request(catalogue: Catalogue, cascades: Mapping[str, Cascade]) -> Floats:
    """Return the legs of each llm per request for each llm, shape (L requested, L that serve or judge).

    Whether an answer is accepted does not depend on the llms before: p_1 = 1, p_(i+1) = p_i times the
    escalated share of the i-th llm's answers (Cascadia 3.2, footnote 1). If the llm is chosen at arrival, its
    share is p_i - p_(i+1). Shadow requests are legs of the llms that a request does not reach.
    """
    llms = list(catalogue.llms)
    shares = np.eye(len(llms))
    for requested, cascade in cascades.items():
        row = llms.index(requested)
        shares[row] = 0.0
        reached = np.cumprod([1.0, *cascade.escalation_shares])
        judged = 0.0 if cascade.at_arrival else reached[:-1] @ (np.array(cascade.escalation_shares) > 0)
        if cascade.at_arrival:
            reached = reached - np.append(reached[1:], 0.0)
        sample = cascade.shadow_share
        shares[row, [llms.index(llm) for llm in cascade.llms]] = reached + sample * (1 - reached)
        if cascade.judge_llm is not None:
            shares[row, llms.index(cascade.judge_llm)] = judged + sample * (reached.size - judged)
    return shares


def check_cascades(config: RunConfig, catalogue: Catalogue) -> None:
    """Raise ConfigError for cascades with undeployed or repeated llms, missing shares, or contradictions."""
    escalation_rules = dict[str, tuple[Any, ...]]()  # by llm
    for requested, cascade in config.replay.cascades.items():
        where = f"{config.file.name} [replay.cascades] {requested}"
        for llm in (requested, *cascade.llms):
            require_known(llm, catalogue.llms, "llm", where)
            if llm not in config.fleet.deployments:
                raise ConfigError(f"{where}: {llm} is not in [fleet.deployments]. Add it there or drop it.")
        if len(set(cascade.llms)) < max(len(cascade.llms), 2):
            raise ConfigError(
                f"{where}: llms are {', '.join(cascade.llms) or 'none'}; it needs two or more, each once, "
                "from the first to the last that serves a request."
            )
        if len(cascade.escalation_shares) != len(cascade.llms) - 1:
            raise ConfigError(
                f"{where}: {len(cascade.escalation_shares)} escalation_shares for {len(cascade.llms)} "
                "llms; each llm but the last needs one. Add or drop some."
            )
        check_gears(cascade, where)
        check_judge(config, requested, where)
        for leg, llm in enumerate(cascade.llms[:-1]):
            gears = [(gear.at_least, gear.escalation_shares[leg]) for gear in cascade.gears]
            load_llm = cascade.llms[leg + 1] if cascade.gears_by == "load" else cascade.llms[0]
            judge = (cascade.judge_s, cascade.judge_llm, cascade.at_arrival)
            rule = (cascade.escalation_shares[leg], judge, gears and (gears, load_llm))
            if escalation_rules.setdefault(llm, rule) != rule:
                raise ConfigError(
                    f"{where}: answers of {llm} are judged in another cascade too, with another share, "
                    "judge or gears. Give both the same."
                )
    triggers = {cascade.gears_by for cascade in config.replay.cascades.values() if cascade.gears}
    if len(triggers) > 1:
        raise ConfigError(
            f"{config.file.name} [replay.cascades]: gears_by is {' and '.join(sorted(triggers))}. Choose one."
        )


def check_gears(cascade: Cascade, where: str) -> None:
    """Raise ConfigError for gears whose loads do not rise, or with missing shares."""
    at_least = [gear.at_least for gear in cascade.gears]
    if any(later <= earlier for earlier, later in pairwise(at_least)):
        raise ConfigError(f"{where}: the gears' at_least is {at_least}; it must rise. Sort them.")
    for gear in cascade.gears:
        if len(gear.escalation_shares) != len(cascade.escalation_shares):
            raise ConfigError(
                f"{where}: the gear from {gear.at_least:g} has {len(gear.escalation_shares)} "
                "escalation_shares; each llm but the last needs one. Add or drop some."
            )


def check_judge(config: RunConfig, requested: str, where: str) -> None:
    """Raise ConfigError for a judge llm that is not deployed, scores itself, or contradicts its cascade."""
    cascade = config.replay.cascades[requested]
    judge = cascade.judge_llm
    if cascade.gears and not cascade.is_judged_outside:
        raise ConfigError(
            f"{where}: gears need an external judge, whose thresholds can move. Drop gears, or judge_llm and "
            "at_arrival."
        )
    if judge is None:
        return
    if judge not in config.fleet.deployments:
        raise ConfigError(
            f"{where}: judge_llm = {judge!r} is not in [fleet.deployments]. Add it there, or drop judge_llm: "
            "then the judge is an external service."
        )
    if cascade.at_arrival:
        raise ConfigError(
            f"{where}: at_arrival with judge_llm = {judge!r}, which reads answers: at arrival there is none. "
            "Drop one of them."
        )
    if any(judge in other.llms for other in config.replay.cascades.values()):
        raise ConfigError(
            f"{where}: judge_llm = {judge!r} would judge its own answers: a cascade has it among its llms. "
            "Name an llm that is in no cascade, or drop judge_llm: then the judge is an external service."
        )
    if cascade.judge_s:
        raise ConfigError(
            f"{where}: judge_s = {cascade.judge_s:g} with judge_llm = {judge!r}, whose legs are its time. "
            "Set judge_s = 0, or drop judge_llm."
        )


def check_quality_policies(config: RunConfig, catalogue: Catalogue) -> None:
    """Raise ConfigError for policies with a plan for quality if [quality] has no targets or other llms."""
    policies = dict.fromkeys([*config.replay.policies, *config.policies])
    named = [name for name in policies if config.rules[name].answers is not None]
    if not named:
        return
    quality, where = config.quality, f"{config.file.name} policy {named[0]}"
    if quality is None or quality.quality is None or quality.latency_s is None:
        raise ConfigError(
            f"{where} needs [quality] with quality and latency_s, the targets of its plan. Add them, or "
            "drop the policy."
        )
    llms = {*quality.llms, *([quality.judge_llm] if quality.judge_llm else [])}
    if missing := sorted(llms - config.fleet.deployments.keys()):
        raise ConfigError(
            f"{where} plans the llms of [quality]; [fleet.deployments] lacks {', '.join(missing)}. Add it "
            "there, or take it out of [quality]."
        )
    if standing := [name for name in named if config.rules[name].plan == "standing"]:
        check_all_day_plan(config, catalogue, llms, f"{config.file.name} policy {standing[0]}")


def check_all_day_plan(config: RunConfig, catalogue: Catalogue, llms: Collection[str], where: str) -> None:
    """Raise ConfigError for an all-day plan of model routing without the whole fleet in one region.

    `llms` are those of the plan, with its judge.
    """
    if other := sorted(config.fleet.deployments.keys() - set(llms)):
        raise ConfigError(
            f"{where} plans the llms of [quality] alone; [fleet.deployments] also has {', '.join(other)}. "
            "Name it in both, or in neither."
        )
    pools = [(llm, pool) for llm, of_llm in config.fleet.deployments.items() for pool in of_llm]
    regions = [
        name
        for name, region in catalogue.regions.items()
        if any(region.cap_gpus.get(pool.gpu, 0) and name in (pool.regions or (name,)) for _, pool in pools)
    ]
    if len(regions) != 1:
        raise ConfigError(
            f"{where} plans one region, but {', '.join(regions) or 'no region'} has GPUs of "
            "[fleet.deployments]. Give cap_gpus in one region of [catalogue.regions], none in the others."
        )
    kinds = [(llm, pool.gpu, pool.tensor_parallel, pool.pipeline_parallel) for llm, pool in pools]
    if len(set(kinds)) < len(kinds) or any(pool.role != "whole" for _, pool in pools):
        raise ConfigError(
            f"{where} plans whole instances, those of one kind in one pool. Merge equal pools of "
            "[fleet.deployments], and give them no role."
        )
