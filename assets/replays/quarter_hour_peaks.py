"""The largest fleet of each quarter of an hour: how SageServe counts instance-hours (its Fig. 8 and 11).

A quarter with 4 instances and, for a moment, 9 counts 9/4 instance-hours so; its integral is hardly above 1.
"""

import math
from typing import Any

import numpy as np

from fleetcast.models.aliases import Ints
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules
from fleetcast.models.replay.run import Session
from fleetcast.models.world.calendar import QUARTER_S
from fleetcast.models.world.mechanisms import STATES

INSTANT_S = 1e-6  # in which whatever happens at an instant has happened
HELD_STATES = [STATES.index(name) for name in ("serving", "booting")]


class WatchedSession(Session):
    """A session that looks at its fleet so often that it sees every size of a pool.

    A rule takes one step at a pool in a cooldown, or acts when the fleet is monitored: what a pool holds when
    stretches begin and end that are no longer than either has had every value that there was.
    """

    def __init__(self, fleet: FleetArrays, rules: Rules, start: Any) -> None:
        """As Session; `held` has the endpoints' instances that serve or boot, (L*G,), twice a stretch."""
        super().__init__(fleet, rules, start)
        shortest_s = max(1.0, min(rules.monitor_s, rules.cooldown_s or rules.monitor_s))
        self.stretch_s = QUARTER_S / math.ceil(QUARTER_S / shortest_s)
        self.held: list[Ints] = []

    def run_until(self, end_s: float) -> None:
        """As Session, twice a stretch: once all that happens when it begins has happened, and at its end."""
        begin_s = float(self.state.progress.hour_s)
        for stretch in range(round((end_s - begin_s) / self.stretch_s)):
            for until_s in (INSTANT_S, self.stretch_s):
                super().run_until(begin_s + stretch * self.stretch_s + until_s)
                self.held.append(sum_by_endpoint(self.fleet, self.instances()[:, HELD_STATES].sum(axis=1)))

    def largest(self) -> Ints:
        """The most instances that each endpoint has held in each quarter played: (quarters, L*G)."""
        return largest_by_quarter(np.array(self.held), self.stretch_s)


def largest_by_quarter(held: Ints, stretch_s: float) -> Ints:
    """The largest of each quarter of an hour, (quarters, ...), of two looks at each stretch."""
    return held.reshape(-1, 2 * round(QUARTER_S / stretch_s), *held.shape[1:]).max(axis=1)


def sum_by_endpoint(fleet: FleetArrays, of_pools: Ints) -> Ints:
    """Counts by pool, (E,), as counts by endpoint, (L*G,)."""
    endpoint = fleet.llm * fleet.network_s.shape[0] + fleet.region
    return np.bincount(endpoint, of_pools, fleet.pools_of.shape[0]).astype(np.int64)
