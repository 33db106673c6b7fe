"""Cascades: which llms answer a request for an llm, one after the other, and which cannot be."""

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
    """The legs of each llm by request for each llm, shape (L asked, L that answer or judge).

    Whether an answer will do does not depend on those before it: p_1 = 1, p_(i+1) = p_i times the share of
    answers of the i-th llm that will not (Cascadia 3.2, footnote 1). Chosen at arrival, an llm has p_i -
    p_(i+1). Shadows are legs of those llms that a request does not come to.
    """
    llms = list(catalogue.llms)
    shares = np.eye(len(llms))
    for asked, cascade in cascades.items():
        row = llms.index(asked)
        shares[row] = 0.0
        come = np.cumprod([1.0, *cascade.escalation_shares])
        judged = 0.0 if cascade.at_arrival else come[:-1] @ (np.array(cascade.escalation_shares) > 0)
        if cascade.at_arrival:
            come = come - np.append(come[1:], 0.0)
        sample = cascade.shadow_share
        shares[row, [llms.index(llm) for llm in cascade.llms]] = come + sample * (1 - come)
        if cascade.judge_llm is not None:
            shares[row, llms.index(cascade.judge_llm)] = judged + sample * (come.size - judged)
    return shares


def check_cascades(config: RunConfig, catalogue: Catalogue) -> None:
    """Refuse cascades of llms that nobody deploys, in a circle, without a share a step, or at odds."""
    goes_on = dict[str, tuple[Any, ...]]()
    for asked, cascade in config.replay.cascades.items():
        where = f"{config.file.name} [replay.cascades] {asked}"
        for llm in (asked, *cascade.llms):
            require_known(llm, catalogue.llms, "llm", where)
            if llm not in config.fleet.deployments:
                raise ConfigError(f"{where}: {llm} is not in [fleet.deployments]. Add it there or drop it.")
        if len(set(cascade.llms)) < max(len(cascade.llms), 2):
            raise ConfigError(
                f"{where}: llms are {', '.join(cascade.llms) or 'none'}; it needs two or more, each once, "
                "from the first that answers to the last."
            )
        if len(cascade.escalation_shares) != len(cascade.llms) - 1:
            raise ConfigError(
                f"{where}: {len(cascade.escalation_shares)} escalation_shares for {len(cascade.llms)} "
                f"llms; each llm "
                "but the last needs one. Add or drop some."
            )
        check_gears(cascade, where)
        check_judge(config, asked, where)
        for leg, llm in enumerate(cascade.llms[:-1]):
            gears = [(gear.at_least, gear.escalation_shares[leg]) for gear in cascade.gears]
            behind = cascade.llms[leg + 1] if cascade.gears_by == "load" else cascade.llms[0]
            judge = (cascade.judge_s, cascade.judge_llm, cascade.at_arrival)
            said = (cascade.escalation_shares[leg], judge, gears and (gears, behind))
            if goes_on.setdefault(llm, said) != said:
                raise ConfigError(
                    f"{where}: answers of {llm} are judged in another cascade too, with another share, "
                    "judge or gears. Give both the same."
                )
    ways = {cascade.gears_by for cascade in config.replay.cascades.values() if cascade.gears}
    if len(ways) > 1:
        raise ConfigError(
            f"{config.file.name} [replay.cascades]: gears_by is {' and '.join(sorted(ways))}. Take one."
        )


def check_gears(cascade: Cascade, where: str) -> None:
    """Refuse gears out of order, or without a share a step."""
    at_least = [gear.at_least for gear in cascade.gears]
    if any(later <= earlier for earlier, later in pairwise(at_least)):
        raise ConfigError(f"{where}: the gears' at_least is {at_least}; it must rise. Sort them.")
    for gear in cascade.gears:
        if len(gear.escalation_shares) != len(cascade.escalation_shares):
            raise ConfigError(
                f"{where}: the gear from {gear.at_least:g} has {len(gear.escalation_shares)} "
                f"escalation_shares; each "
                "llm but the last needs one. Add or drop some."
            )


def check_judge(config: RunConfig, asked: str, where: str) -> None:
    """Refuse a judge of ours that judges itself, is none, or is at odds with the rest of its cascade."""
    cascade = config.replay.cascades[asked]
    judge, answers = cascade.judge_llm, [one.llms for one in config.replay.cascades.values()]
    if cascade.gears and not cascade.is_judged_outside:
        raise ConfigError(
            f"{where}: gears need a judge outside, whose thresholds can move. Drop gears, or judge_llm and "
            "at_arrival."
        )
    if judge is None:
        return
    if judge not in config.fleet.deployments:
        raise ConfigError(
            f"{where}: judge_llm = {judge!r} is not in [fleet.deployments]. Add it there, or drop judge_llm: "
            "then the judge is a service outside."
        )
    if cascade.at_arrival:
        raise ConfigError(
            f"{where}: at_arrival with judge_llm = {judge!r}, which reads answers: at arrival there is none. "
            "Drop one of them."
        )
    if any(judge in llms for llms in answers):
        raise ConfigError(
            f"{where}: judge_llm = {judge!r} would judge its own answers: a cascade has it among its llms. "
            "Name an llm that answers in none, or drop judge_llm: then the judge is a service outside."
        )
    if cascade.judge_s:
        raise ConfigError(
            f"{where}: judge_s = {cascade.judge_s:g} with judge_llm = {judge!r}, whose legs are its time. "
            "Set judge_s = 0, or drop judge_llm."
        )


def check_quality_policies(config: RunConfig, catalogue: Catalogue) -> None:
    """Refuse policies with a plan for quality where nothing is asked, or it does not plan all there is."""
    named = [name for name in config.replay.policies if config.rules[name].answers is not None]
    if not named:
        return
    said, where = config.quality, f"{config.file.name} [replay] policies: {named[0]}"
    if said is None or said.quality is None or said.latency_s is None:
        raise ConfigError(
            f"{where} needs [quality] with quality and latency_s, which are asked of its plan. Add them, or "
            "drop the policy."
        )
    answer = {*said.llms, *([said.judge_llm] if said.judge_llm else [])}
    if lacking := sorted(answer - config.fleet.deployments.keys()):
        raise ConfigError(
            f"{where} plans the llms of [quality]; [fleet.deployments] lacks {', '.join(lacking)}. Add it "
            "there, or take it out of [quality]."
        )
    if standing := [name for name in named if config.rules[name].plan == "standing"]:
        check_all_day_plan(config, catalogue, answer, f"{config.file.name} [replay] policies: {standing[0]}")


def check_all_day_plan(config: RunConfig, catalogue: Catalogue, answer: Collection[str], where: str) -> None:
    """Refuse a plan for who answers that is held all day where it is not of all there is, in one place."""
    if other := sorted(config.fleet.deployments.keys() - set(answer)):
        raise ConfigError(
            f"{where} plans the llms of [quality] alone; [fleet.deployments] has {', '.join(other)} besides. "
            "Name it in both, or in neither."
        )
    pools = [(llm, pool) for llm, own in config.fleet.deployments.items() for pool in own]
    sites = [
        name
        for name, site in catalogue.regions.items()
        if any(site.cap_gpus.get(pool.gpu, 0) and name in (pool.regions or (name,)) for _, pool in pools)
    ]
    if len(sites) != 1:
        raise ConfigError(
            f"{where} plans one place, but {', '.join(sites) or 'no region'} has GPUs of [fleet.deployments]"
            ". Give cap_gpus in one region of [catalogue.regions], none in the others."
        )
    kinds = [(llm, pool.gpu, pool.tensor_parallel, pool.pipeline_parallel) for llm, pool in pools]
    if len(set(kinds)) < len(kinds) or any(pool.role != "whole" for _, pool in pools):
        raise ConfigError(
            f"{where} plans whole instances, those of a kind in one pool. Merge like pools of "
            "[fleet.deployments], and give them no role."
        )
