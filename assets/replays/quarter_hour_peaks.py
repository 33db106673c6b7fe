"""The largest fleet of each quarter of an hour: how SageServe counts instance-hours (its Fig. 8 and 11).

A quarter with 4 instances, and 9 for a moment, counts as 9/4 instance-hours; its integral is hardly above 1.
"""

import math
from typing import Any

import numpy as np

from fleetcast.models.aliases import Ints
from fleetcast.models.replay.kernel_inputs import FleetArrays, Rules
from fleetcast.models.replay.run import Session
from fleetcast.models.world.calendar import QUARTER_S
from fleetcast.models.world.mechanisms import STATES

INSTANT_S = 1e-6  # after this time, all events of an instant are done
HELD_STATES = [STATES.index(name) for name in ("serving", "booting")]


class WatchedSession(Session):
    """A session that samples its fleet often enough to see every size of a pool.

    A rule changes a pool once in a cooldown, or when the fleet is monitored. So samples at the begin and the
    end of intervals no longer than either see every count.
    """

    def __init__(self, fleet: FleetArrays, rules: Rules, start: Any) -> None:
        """As Session; `held_counts` has serving or booting instances, (endpoints,), twice per interval."""
        super().__init__(fleet, rules, start)
        shortest_s = max(1.0, min(rules.monitor_s, rules.cooldown_s or rules.monitor_s))
        self.interval_s = QUARTER_S / math.ceil(QUARTER_S / shortest_s)
        self.held_counts: list[Ints] = []

    def run_until(self, end_s: float) -> None:
        """As Session, with two samples per interval: after all events of its begin, and at its end."""
        begin_s = float(self.state.progress.hour_s)
        for interval in range(round((end_s - begin_s) / self.interval_s)):
            for until_s in (INSTANT_S, self.interval_s):
                super().run_until(begin_s + interval * self.interval_s + until_s)
                counts = self.instances()[:, HELD_STATES].sum(axis=1)
                self.held_counts.append(sum_by_endpoint(self.fleet, counts))

    def largest(self) -> Ints:
        """Return the largest count of each endpoint in each quarter of an hour, (quarters, endpoints)."""
        return largest_by_quarter(np.array(self.held_counts), self.interval_s)


def largest_by_quarter(counts: Ints, interval_s: float) -> Ints:
    """Return the largest count of each quarter: (samples, ...) -> (quarters, ...), 2 samples per interval."""
    return counts.reshape(-1, 2 * round(QUARTER_S / interval_s), *counts.shape[1:]).max(axis=1)


def sum_by_endpoint(fleet: FleetArrays, by_pool: Ints) -> Ints:
    """Return counts by endpoint, (llms * regions,), from counts by pool, (pools,)."""
    endpoint = fleet.llm * fleet.network_s.shape[0] + fleet.region
    return np.bincount(endpoint, by_pool, fleet.pools_of.shape[0]).astype(np.int64)
