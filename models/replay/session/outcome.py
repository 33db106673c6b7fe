"""Outcome of a replay: times and status of each request, and the use of the fleet."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, TraceArrays
from fleetcast.models.replay.state import State, copy_columns
from fleetcast.models.world.mechanisms import Ending

REQUEST_TIMES = ("first_token_s", "finish_s", "dispatched_s", "admitted_s")


class FleetUsage(NamedTuple):
    """Use of the fleet hour by hour; units are those of Outcome."""

    instance_s: Floats  # (hours, E, 4)
    kv_used: Floats  # (hours, E)
    kv_room: Floats  # (hours, E)
    moved: Ints  # (hours, E, 3)


class Outcome(NamedTuple):
    """Outcome of R requests, and the use of the fleet; times are seconds on the trace's clock."""

    row: Ints  # (R,) index among all requests that were appended to the session
    status: npt.NDArray[np.int8]  # (R,) Ending
    first_token_s: Floats  # (R,) network_s included; NaN if never
    finish_s: Floats  # (R,) network_s included; NaN if never
    dispatched_s: Floats  # (R,) when it reached its instance's queue; NaN if never
    admitted_s: Floats  # (R,) when it entered that instance's batch; NaN if never
    slot: Ints  # (R,) the instance; NO_INDEX if never dispatched
    served_region: npt.NDArray[np.int16]  # (R,) NO_INDEX if never dispatched
    network_s: Floats  # (R,) seconds outside the engines: front end, and delay of another region
    preemptions: npt.NDArray[np.int32]  # (R,)
    reused: npt.NDArray[np.int32]  # (R,) prompt tokens found in the cache at its latest admission
    sent_from: Ints  # (R,) slot that sent it to `slot`; NO_INDEX: none; (0,) for a fleet without transfers
    sent_s: Floats  # (R,) when it was sent; NaN if never; (0,)
    came_s: Floats  # (R,) when its cache arrived; NaN if never; (0,)
    joined_s: Floats  # (R,) when it entered the batch of `slot` with that cache; NaN if never; (0,)
    instance_s: Floats  # (hours, E, 4) instance-seconds in STATES, by pool
    kv_used: Floats  # (hours, E) token-seconds of KV memory in use at the serving instances
    kv_room: Floats  # (hours, E) token-seconds of their KV capacity
    moved: Ints  # (hours, E, 3) moves from the pool: of waiting requests, of decoding ones, aborted
    cached_tokens: int  # by prefill and decode until the last event; a request's last token is not cached
    recomputed_tokens: int  # of these, lost by preemption and computed again
    reused_tokens: int  # prompt tokens so far, found in the cache at admission
    events: int  # kernel events so far, for benchmarks

    @property
    def kv_share(self) -> Floats:
        """Time-mean effective memory utilisation, shape (hours, E); NaN where no instance served."""
        return utilisation_share(self.kv_used, self.kv_room)


def collect_outcome(
    trace: TraceArrays, fleet: FleetArrays, state: State, row: Ints, usage: FleetUsage
) -> Outcome:
    """Return the outcome of the trace's requests; row: shape (R,), indices.

    This is the one place that adds the seconds outside the engines: [fleet] frontend_s, then the network.
    """
    progress = state.progress
    served_by, refused, spared, first_token_s, finish_s, dispatched_s, admitted_s, preemptions = copy_columns(
        state.request, "served_by", "refused", "spared", *REQUEST_TIMES, "preemptions"
    )
    (reused,) = copy_columns(state.sharing, "reused")
    sent_from, sent_s, came_s, joined_s = copy_columns(
        state.transfer, "sent_from", "sent_s", "came_s", "joined_s"
    )
    slot = served_by.astype(np.int64)
    dispatched = slot != NO_INDEX
    served = np.where(dispatched, fleet.region[fleet.pool[slot]], NO_INDEX).astype(np.int16)
    frontend_s = fleet.network_s[trace.region, trace.region]
    delay_s = fleet.network_s[trace.region, served] - frontend_s
    arrival_us = np.round(trace.arrival_s * 1e6).astype(np.int64)
    factor = fleet.network_factor[arrival_us % fleet.network_factor.size]
    network_s = np.where(dispatched, frontend_s + delay_s * factor, 0.0)  # the front end does not vary
    cases = (np.isfinite(finish_s), refused, spared)
    status = np.select(cases, (Ending.FINISHED, Ending.REFUSED, Ending.SPARED), Ending.QUEUED)
    return Outcome(
        row,
        status.astype(np.int8),
        first_token_s + network_s,
        finish_s + network_s,
        dispatched_s,
        admitted_s,
        slot,
        served,
        network_s,
        preemptions,
        reused if reused.size else np.zeros(row.size, np.int32),
        sent_from.astype(np.int64),
        sent_s,
        came_s,
        joined_s,
        *usage,
        int(progress.cached_tokens),
        int(progress.lost_tokens),
        int(progress.reused_tokens),
        int(progress.events),
    )


def utilisation_share(used: Floats, room: Floats) -> Floats:
    """Return used / room, both token-seconds and of one shape; NaN where room is 0."""
    with np.errstate(invalid="ignore"):
        return used / room
