"""Needs: the time to the first token that each request wants; levels of priority are a coarse view of them.

However many levels there are, needs lie on the same steps, so that what K levels attain can be compared. A
level is a class of steps next to each other; a request is served by its level and judged by its need.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.traffic.priority_levels import (
    LevelCodes,
    assign_levels,
    assign_levels_by_app,
    level_shares,
    levels_of_steps,
)
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.models.world.option_names import LEVELS_BY_APP, LEVELS_BY_TIER
from fleetcast.models.world.toml_dataclasses import ConfigError

NEED_STEPS = 10  # of needs that are drawn, as many as there may be levels
NO_DEADLINE_S = 86_400.0  # of a need to the first token


class NeedsByRequest(NamedTuple):
    """What each request wants."""

    tiers: Mapping[str, Tier]  # a step each; nobody is held back
    step: LevelCodes  # (R,) position among them


def draw_needs(
    by: str, requests: int, seed: int, ends_s: tuple[float, float], target: float
) -> NeedsByRequest:
    """Needs on STEPS from the strictest to the loosest in equal ratios, dealt like a sampler's levels.

    `target` is the share of a step's requests that must be served in time. ConfigError where the ends cross.
    """
    strictest_s, loosest_s = ends_s
    if not 0 < strictest_s < loosest_s:
        raise ConfigError(
            f"Needs from {strictest_s:g} s to {loosest_s:g} s: the strictest must be above 0 s and below the "
            "loosest. Name both: --needs STRICTEST,LOOSEST."
        )
    tiers = {
        f"{seconds:.3g} s": Tier(NO_DEADLINE_S, target, "a step of needs", ttft_slo_s=float(seconds))
        for seconds in np.geomspace(strictest_s, loosest_s, NEED_STEPS)
    }
    return NeedsByRequest(tiers, assign_levels(np.zeros(requests, np.int16), by, NEED_STEPS, seed))


def needs_of_tiers(tiers: Mapping[str, Tier], tier: LevelCodes) -> NeedsByRequest:
    """What the requests' own tiers want."""
    return NeedsByRequest(
        {name: dataclasses.replace(own, is_held=False) for name, own in tiers.items()}, tier
    )


def levels_of_needs(
    needs: NeedsByRequest, by: str, count: int, app: NDArray[np.int64] | None = None
) -> LevelCodes:
    """The level of each request, shape (R,), of so many: that of its tier, of its app, or of its step.

    A step belongs to the level of a sampler in whose share the middle of its own share lies.
    """
    if by == LEVELS_BY_TIER:
        return assign_levels(needs.step, by, count, 0)
    if by == LEVELS_BY_APP:
        if app is None:
            raise ValueError("Levels by app need the app of each request.")
        need_s = np.array([tier.allowance_s for tier in needs.tiers.values()])
        return assign_levels_by_app(app, need_s[needs.step], count)
    return levels_of_steps(level_shares(by, NEED_STEPS), level_shares(by, count))[needs.step]
