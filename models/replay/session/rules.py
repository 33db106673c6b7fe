"""Build the kernel's rules from the configuration: thresholds, intervals, levels, gears, failures."""

import itertools
from typing import Any

import numpy as np

from fleetcast.models.aliases import Bools, Floats, Ints
from fleetcast.models.replay.kernel_inputs import ALL_STEPS, NO_INDEX, FleetArrays, Rules
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.mechanisms import (
    GEARS_BY,
    SCALINGS,
    BatchPull,
    GearTrigger,
    Opportunism,
    PoolSpread,
    QueueDemand,
    QueueOrder,
    Routing,
    Scaling,
    Signal,
    code_of_name,
)
from fleetcast.models.world.replay_config import LevelsConfig, ReplayConfig

# Of the strictest target per output token. With 0.6 batch work waits until it is due and buys instances.
PULL_STEP_SHARE = 0.8


def make_rules(catalogue: Catalogue, replay: ReplayConfig, scaling: str, *, leap: bool = True) -> Rules:
    """Build the rules of a configured policy; `leap=False` plays every decode step (for tests).

    ValueError for an unknown `scaling`.
    """
    if scaling not in SCALINGS:
        raise ValueError(f"Unknown scaling {scaling!r}; there are {', '.join(SCALINGS)}.")
    # Scores are uniform, so the share that escalates is the threshold.
    judged = {
        llm: (share, cascade.judge_s)
        for cascade in replay.cascades.values()
        if cascade.is_judged_outside
        for llm, share in zip(cascade.llms, cascade.escalation_shares, strict=False)
    }
    allowance_s = np.array([tier.allowance_s for tier in catalogue.tiers.values()])
    coded = {
        "scaling": code_of_name(Scaling, scaling),
        "signal": code_of_name(Signal, replay.signal),
        "routing": code_of_name(Routing, replay.routing),
        "order": code_of_name(QueueOrder, replay.order),
        "tau_n_s": np.inf if replay.order == "late_last" else replay.tau_n_s,
        "spread": code_of_name(PoolSpread, replay.spread),
        "batch_pull": code_of_name(BatchPull, replay.batch_pull),
        "opportunism": code_of_name(Opportunism, replay.opportunism),
    }
    unchanged = {name: value for name, value in vars(replay).items() if name in Rules._fields}
    return Rules(
        **unchanged | coded,
        **level_fields(replay.levels),
        **move_fields(replay),
        **gear_fields(catalogue, replay),
        go_on_below=np.array([judged.get(llm, (0.0, 0.0))[0] for llm in catalogue.llms]),
        judge_s=np.array([judged.get(llm, (0.0, 0.0))[1] for llm in catalogue.llms]),
        allowance_s=allowance_s,
        pull_step_s=PULL_STEP_SHARE * strictest_tpot_slo_s(catalogue),
        urgency=urgencies(allowance_s, np.array([tier.is_held for tier in catalogue.tiers.values()])),
        correction_s=3600.0 - 60.0 * replay.correction_minutes,
        failure_s=np.zeros(0),
        failure_slot=np.zeros(0, np.int64),
        steps_per_event=ALL_STEPS if leap else 1,
    )


def strictest_tpot_slo_s(catalogue: Catalogue) -> float:
    """Return the smallest target for seconds per output token of an interactive tier; inf without one."""
    tiers = (tier for tier in catalogue.tiers.values() if not tier.is_held)
    return min((tier.tpot_slo_s for tier in tiers if tier.tpot_slo_s is not None), default=np.inf)


def level_fields(levels: LevelsConfig) -> dict[str, Any]:
    """Return the fields of Rules for priority levels."""
    return {
        "headroom_share": headroom_shares(levels),
        "uses_central_queue": levels.least_ceiling_share is not None,
        "ceiling_share": ceiling_shares(levels),
        "demand": code_of_name(QueueDemand, levels.demand),
        "promote_s": levels.promote_s or np.inf,
    }


def move_fields(replay: ReplayConfig) -> dict[str, Any]:
    """Return the fields of Rules for moves between instances."""
    moves = replay.moves
    return {
        "balance_s": moves.interval_s if replay.is_balanced else np.inf,
        "gap_blocks": moves.gap_blocks,
        "from_blocks": np.inf if moves.from_blocks is None else moves.from_blocks,
        "is_guarded": moves.is_guarded,
        "lowest_first": moves.lowest_first,
        "last_copy_tokens": moves.last_copy_tokens,
        "max_copies": moves.max_copies,
        "move_s": moves.hand_over_s,
    }


def gear_fields(catalogue: Catalogue, replay: ReplayConfig) -> dict[str, Any]:
    """Return the fields of Rules for gears, which set thresholds; no gears where no cascade has any."""
    llms = list(catalogue.llms)
    most = max((1 + len(cascade.gears) for cascade in replay.cascades.values() if cascade.gears), default=0)
    observed, least = np.full(len(llms), NO_INDEX), np.full((len(llms), most), np.inf)
    below, by = np.zeros((len(llms), most)), GEARS_BY[0]
    for cascade in replay.cascades.values():
        if not cascade.gears:
            continue
        by = cascade.gears_by
        for leg, (llm, behind) in enumerate(itertools.pairwise(llms.index(llm) for llm in cascade.llms)):
            observed[llm] = llms.index(cascade.llms[0]) if by == "rate" else behind
            shares = [cascade.escalation_shares, *(gear.escalation_shares for gear in cascade.gears)]
            below[llm, : len(shares)] = [share[leg] for share in shares]
            least[llm, : len(shares)] = [0.0, *(gear.at_least for gear in cascade.gears)]
    return {
        "gears_by": code_of_name(GearTrigger, by),
        "gear_llm": observed,
        "gear_from": least,
        "gear_below": below,
    }


def headroom_shares(levels: LevelsConfig) -> Floats:
    """Return h e^(-p) of each level p, shape (K,), of memory; 0 for a single level (Llumnix, eq. 3)."""
    if levels.count == 1:
        return np.zeros(1)
    return levels.headroom_share * np.exp(-np.arange(levels.count))


def ceiling_shares(levels: LevelsConfig) -> Floats:
    """Return the saturation ceiling of each level, shape (K,): linear from 1 for level 0 to the least one."""
    least = 1.0 if levels.least_ceiling_share is None else levels.least_ceiling_share
    return np.linspace(1.0, least, levels.count)


def urgencies(allowance_s: Floats, is_held: Bools) -> Ints:
    """Return the urgency class of each tier, shape (T,): interactive ones by allowance, the others the last.

    allowance_s: shape (T,), seconds; is_held: shape (T,), the tier is not interactive.
    """
    steps = np.unique(allowance_s[~is_held])
    return np.where(is_held, max(steps.size - 1, 0), np.searchsorted(steps, allowance_s))


def knows_ranks(rules: Rules) -> bool:
    """Return whether the rules can serve instances of several data-parallel ranks.

    Freeness, INFAaS and live moves are defined for an instance with one batch and one memory.
    """
    by_one_batch = (Routing.FREENESS, Routing.INFAAS)
    return (
        rules.routing not in by_one_batch
        and rules.scaling != Scaling.FREENESS
        and not np.isfinite(rules.balance_s)
    )


def add_failures(
    rules: Rules, fleet: FleetArrays, per_instance_day: float, horizon_s: float, seed: int
) -> Rules:
    """Return the rules with sampled failures: a Poisson process per slot; it counts while the slot serves."""
    rng = np.random.default_rng([seed, 0xDEAD])
    slots = fleet.slots[-1]
    count = rng.poisson(per_instance_day * horizon_s / 86_400.0 * slots)
    failure_s = np.sort(rng.uniform(0.0, horizon_s, count))
    return rules._replace(failure_s=failure_s, failure_slot=rng.integers(0, slots, count))
