"""The largest fleet of each quarter of an hour: how SageServe counts instance-hours (its Fig. 8 and 11).

A quarter with 4 instances and, for a moment, 9 counts 9/4 instance-hours so; its integral is hardly above 1.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from models.replay.kernel import account, advance, start_hour
from models.replay.run import Drive, Session, plan_rows
from models.replay.state import ENDED, NOW, STATES, Fleet, Floats, Ints, Rules

QUARTER_S = 900.0
INSTANT_S = 1e-6  # in which whatever happens at an instant has happened
HELD = [STATES.index(name) for name in ("serving", "booting")]


class WatchedSession(Session):
    """A session that looks at its fleet so often that it sees every size of a pool.

    A rule takes one step at a pool in a cooldown, or acts when the fleet is monitored: what a pool holds when
    stretches begin and end that are no longer than either has had every value that there was.
    """

    def __init__(self, fleet: Fleet, rules: Rules, start: Any) -> None:
        """As Session; `held` has the endpoints' instances that serve or boot, (L*G,), twice a stretch."""
        super().__init__(fleet, rules, start)
        shortest_s = max(1.0, min(rules.monitor_s, rules.cooldown_s or rules.monitor_s))
        self.stretch_s = QUARTER_S / math.ceil(QUARTER_S / shortest_s)
        self.held: list[Ints] = []

    def play(
        self, drive: Drive, until_s: float, progress: Callable[[int], None] | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """As Session.play, where rows of the plan are whole stretches."""
        fleet, state, rules = self.fleet, self.state, self.rules
        begin_s, row_s = float(state.clock[NOW]), drive.row_s
        rows = math.ceil((until_s - begin_s) / row_s)
        targets = plan_rows(drive.targets, (rows, fleet.kind.size), "targets")
        forecast = plan_rows(
            drive.forecast_tokens_per_s, (rows, fleet.pools_of.shape[0]), "forecast_tokens_per_s"
        )
        totals = [self._totals()]
        for row in range(rows):
            state.target[:], state.forecast_tokens_per_s[:] = targets[row], forecast[row]
            now = begin_s + row * row_s
            start_hour(fleet, rules, state, now)
            for stretch in range(round(row_s / self.stretch_s)):
                for until in (INSTANT_S, self.stretch_s):
                    advance(self.trace, fleet, rules, state, now + stretch * self.stretch_s + until, False)
                    self.held.append(by_endpoint(fleet, self.instances()[:, HELD].sum(axis=1)))
            self._require_progress()
            if (row + 1) % drive.rows_per_hour == 0 or row + 1 == rows:
                account(fleet, state, now + row_s)
                totals.append(self._totals())
                if progress is not None:
                    progress(int(state.counts[ENDED]))
        instance_s, used, room = (np.diff(np.stack(column), axis=0) for column in zip(*totals, strict=True))
        return instance_s, used, room

    def largest(self) -> Ints:
        """The most instances that each endpoint has held in each quarter played: (quarters, L*G)."""
        return largest_by_quarter(np.array(self.held), self.stretch_s)


def largest_by_quarter(held: Ints, stretch_s: float) -> Ints:
    """The largest of each quarter of an hour, (quarters, ...), of two looks at each stretch."""
    return held.reshape(-1, 2 * round(QUARTER_S / stretch_s), *held.shape[1:]).max(axis=1)


def by_endpoint(fleet: Fleet, of_pools: Ints) -> Ints:
    """Counts by pool, (E,), as counts by endpoint, (L*G,)."""
    endpoint = fleet.llm * fleet.network_s.shape[0] + fleet.region
    return np.bincount(endpoint, of_pools, fleet.pools_of.shape[0]).astype(np.int64)
