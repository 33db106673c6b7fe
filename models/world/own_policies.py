"""Policies of installed packages: the entry point `fleetcast.policies` names an `OwnPolicy`.

    [project.entry-points."fleetcast.policies"]
    mine = "my_package:mine"

`fleetcast board --unseen-days` and `fleetcast replay` find it by that name, as they find a shipped one.
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint
from typing import NamedTuple

import numpy.typing as npt

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.installed_objects import load_group, load_installed
from fleetcast.models.world.policies import REPLAY_POLICIES, PolicySpec
from fleetcast.models.world.toml_dataclasses import ConfigError

GROUP = "fleetcast.policies"
PERIODS_MINUTES = (1, 2, 3, 5, 10, 15, 20, 30, 60)
OWN_SCALINGS = ("follow", "reflex")


class FleetObservation(NamedTuple):
    """What a policy of one's own observes when it decides: the fleet now, by pool (E pools).

    A pool is the instances of one deployment of an llm in a region.
    """

    now_s: float  # since midnight
    llm: tuple[str, ...]  # of each pool
    region: tuple[str, ...]
    gpu: tuple[str, ...]
    serving: Ints  # (E,) instances
    booting: Ints
    arriving_tokens_per_s: Floats  # (E,) interactive prompts, smoothed over a minute
    waiting_tokens: Floats  # (E,) prompt tokens without a first token
    due_tokens_per_s: Floats  # (E,) deferred batch prompts, to be done before the first one ages
    memory_share: Floats  # (E,) KV memory in use / capacity, over the serving instances
    capacity_tokens_per_s: Floats  # (E,) that one instance sustains within its SLO, times the policy's knob
    least: Ints  # (E,) instances
    most: Ints


class OwnPolicy(NamedTuple):
    """A policy: a function from an observation to the instances of each pool, and how often it is called.

    The search of the board multiplies the observed capacity by its factor. So a policy that divides load by
    capacity has a knob without a line of code.
    """

    what: str  # description
    decide: Callable[[FleetObservation], npt.ArrayLike]  # (E,) instances; limited to least .. most
    every_minutes: int = 5
    scaling: str = "follow"  # or "reflex": with reactive scale-out between two decisions

    @property
    def rule(self) -> PolicySpec:
        """Its row on the leaderboard."""
        return PolicySpec("own", self.scaling, self.what, "#4D4D4D", signal="both", order="late_last")


@cache
def installed_policies() -> dict[str, OwnPolicy]:
    """Return the policies of installed packages by name; those that `load_policy` refuses are left out."""
    return load_group(GROUP, load_policy)


def load_policy(point: EntryPoint) -> OwnPolicy:
    """Return the policy of an entry point.

    ConfigError where it cannot be imported, is no OwnPolicy, or has a taken or invalid name.
    """
    found, place = load_installed(point, REPLAY_POLICIES, "policy")
    if not isinstance(found, OwnPolicy):
        raise ConfigError(f"{place}: got {type(found).__name__}, needed an OwnPolicy. Change the object.")
    if found.every_minutes not in PERIODS_MINUTES or found.scaling not in OWN_SCALINGS:
        raise ConfigError(
            f"{place}: got every_minutes = {found.every_minutes}, scaling = {found.scaling!r}; needed one of "
            f"{', '.join(map(str, PERIODS_MINUTES))}, and {' or '.join(OWN_SCALINGS)}. Change it."
        )
    return found
