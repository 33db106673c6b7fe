"""Needs: the required time to the first token of each request; priority levels are a coarse view of them.

Needs lie on the same steps whatever the number of levels, so that the attainment of different numbers of
levels can be compared. A level is a range of neighbouring steps. A request is scheduled by its level and
scored by its need.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.traffic.priority_levels import (
    LevelCodes,
    assign_levels_by_app,
    assign_levels_by_tier,
    draw_levels,
    level_shares,
    levels_of_steps,
)
from fleetcast.models.world.catalogue_entries import Tier
from fleetcast.models.world.option_names import LEVELS_BY_APP, LEVELS_BY_TIER
from fleetcast.models.world.toml_dataclasses import ConfigError

NEED_STEPS = 10  # of sampled needs, the largest number of levels
NO_DEADLINE_S = 86_400.0  # end-to-end deadline of a need, long enough to mean none


class NeedsByRequest(NamedTuple):
    """The need of each request."""

    tiers: Mapping[str, Tier]  # one per step; requests of none are held back
    step: LevelCodes  # (R,) position in `tiers`


def draw_needs(
    by: str, requests: int, seed: int, ends_s: tuple[float, float], target: float
) -> NeedsByRequest:
    """Sample needs on NEED_STEPS steps of equal ratio, distributed like the levels of sampler `by`.

    `ends_s` are the strictest and the loosest need. `target` is the share of a step's requests that must meet
    their need. ConfigError where the strictest need is not above 0 s and below the loosest.
    """
    strictest_s, loosest_s = ends_s
    if not 0 < strictest_s < loosest_s:
        raise ConfigError(
            f"Needs from {strictest_s:g} s to {loosest_s:g} s: the strictest must be above 0 s and below the "
            "loosest. Give both: --needs STRICTEST,LOOSEST."
        )
    tiers = {
        f"{seconds:.3g} s": Tier(NO_DEADLINE_S, target, "a step of needs", ttft_slo_s=float(seconds))
        for seconds in np.geomspace(strictest_s, loosest_s, NEED_STEPS)
    }
    return NeedsByRequest(tiers, draw_levels(requests, by, NEED_STEPS, seed))


def needs_of_tiers(tiers: Mapping[str, Tier], tier: LevelCodes) -> NeedsByRequest:
    """Return the needs of the requests' tiers; `tier`, (R,), is a position in `tiers`."""
    return NeedsByRequest(
        {name: dataclasses.replace(spec, is_held=False) for name, spec in tiers.items()}, tier
    )


def levels_of_needs(
    needs: NeedsByRequest, by: str, count: int, app: NDArray[np.int64] | None = None
) -> LevelCodes:
    """Return the level of each request, shape (R,), out of `count`, by its tier, its app or its step.

    A step belongs to the sampler's level whose share contains the middle of the step's share. `app`, shape
    (R,), is needed for levels by app; ValueError without it.
    """
    need_s = np.array([tier.allowance_s for tier in needs.tiers.values()])
    if by == LEVELS_BY_TIER:
        return assign_levels_by_tier(needs.step, need_s, count)
    if by == LEVELS_BY_APP:
        if app is None:
            raise ValueError("Levels by app: got no app of the requests, needed one for each. Pass app.")
        return assign_levels_by_app(app, need_s[needs.step], count)
    return levels_of_steps(level_shares(by, NEED_STEPS), level_shares(by, count))[needs.step]
