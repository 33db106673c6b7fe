"""A policy that learns its capacity share, day by day, against constant shares on the same days.

    python tests/bench learned

Each day is replayed alone, as a nightly run does; what waits at its end is priced. The constant shares know
nothing. `learned_over_constant_TRACE` is the cost over that of the cheapest with all nights on target: the
best that a search in hindsight could have found among them.
"""

import sys
from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
from measure import Figures, Target

from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies.board_day import BoardDay, total_usd, with_policies, worst_attained_ratio
from fleetcast.assets.studies.experiment import INPUT_TABLES, scratch_lake
from fleetcast.assets.studies.study import prepare_lake
from fleetcast.models.plan.learned_share import ScoredDay, learn_share
from fleetcast.models.world.config import CustomPolicy

CONFIGS = {"weeks": (1.2, 1.4, 1.6), "code_weeks": (0.15, 0.2, 0.25)}  # and constant shares near the best
NIGHTS = 12  # the last days of each
RULE, LEARNER, SHIPPED = "compact", "learned", 1.0
TARGETS = {
    "learned_days_on_target": Target("share", "nights on which every tier attained its target", at_least=0.9),
    "learned_days_short": Target("share", "nights that were short by a point or more", at_most=0.05),
    "shipped_days_on_target": Target("share", "the first with the shipped share"),
    **{
        f"learned_over_constant_{config}": Target(
            "ratio", "cost over that of the cheapest constant share with all nights on target"
        )
        for config in CONFIGS
    },
    "learned_nights": Target("nights", "nights, all traces together"),
}


class Night(NamedTuple):
    """What a policy cost on a day, and the attainment over target of its worst tier."""

    usd: float
    ratio: float


def learned_shares() -> Figures:
    """Walk through the nights of CONFIGS with the learning policy and with each constant share."""
    figures, ratios, shipped = dict[str, float](), list[float](), list[float]()
    for config, constant in CONFIGS.items():
        found = walk_nights(load_settings(config), (SHIPPED, *constant))
        usd = {name: sum(night.usd for night in nights) for name, nights in found.items()}
        kept = [name for name in usd if all(night.ratio >= 1 for night in found[name])]
        figures[f"learned_over_constant_{config}"] = usd[LEARNER] / min(
            (usd[name] for name in kept if name != LEARNER), default=np.inf
        )
        ratios += [night.ratio for night in found[LEARNER]]
        shipped += [night.ratio for night in found[constant_name(SHIPPED)]]
        print(config, usd, kept, file=sys.stderr, flush=True)
    return {
        **figures,
        "learned_days_on_target": float(np.mean(np.array(ratios) >= 1)),
        "learned_days_short": float(np.mean(np.array(ratios) < 1 - 0.01 / 0.95)),
        "shipped_days_on_target": float(np.mean(np.array(shipped) >= 1)),
        "learned_nights": len(ratios),
    }


def constant_name(share: float) -> str:
    """Name of the policy with a constant share."""
    return f"constant_{round(100 * share)}"


def walk_nights(settings: RunSettings, constant: Sequence[float]) -> dict[str, list[Night]]:
    """Each policy's nights on the last days of a config, the oldest first."""
    shares = {constant_name(share): share for share in constant}
    rules = {name: CustomPolicy(RULE, capacity_share=share) for name, share in shares.items()}
    rules[LEARNER] = CustomPolicy(RULE)
    settings = settings.with_config(policies=rules)
    settings, last = with_policies(settings, rules), settings.config.trace.replay_day
    days = [last - timedelta(days=back) for back in reversed(range(NIGHTS))]
    found, learned = dict[str, list[Night]](), list[ScoredDay]()
    prepared = prepare_lake(settings, days, Progress())
    for day in days:
        share = learn_share(learned).capacity_share if learned else SHIPPED
        nights = replay_night(settings, prepared, day, shares | {LEARNER: share})
        for name, night in nights.items():
            found.setdefault(name, []).append(night)
        learned.append(ScoredDay(share, nights[LEARNER].ratio))
        print(settings.trace, day, f"{share:.3f}", nights[LEARNER], file=sys.stderr, flush=True)
    return found


def replay_night(
    settings: RunSettings, prepared: Lake, day: date, shares: dict[str, float]
) -> dict[str, Night]:
    """Plan and replay a day with each share."""
    with scratch_lake(settings, prepared, INPUT_TABLES) as scratch:
        figures = BoardDay(scratch, day, Progress()).replay(
            {name: {"capacity_share": share} for name, share in shares.items()}
        )
    return {name: Night(total_usd(rows), worst_attained_ratio(rows)) for name, rows in figures.items()}


FUNCTIONS = (learned_shares,)
