"""What became of the requests of a replay, and what the fleet spent on them."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, TraceArrays
from fleetcast.models.replay.state import ReplayState, copy_columns
from fleetcast.models.world.mechanisms import Ending

REQUEST_TIMES = ("first_token_s", "finish_s", "dispatched_s", "admitted_s")


class FleetUsage(NamedTuple):
    """What the fleet did hour by hour, as in Outcome."""

    instance_s: Floats  # (hours, E, 4)
    kv_used: Floats  # (hours, E)
    kv_room: Floats  # (hours, E)
    moved: Ints  # (hours, E, 3)


class Outcome(NamedTuple):
    """What became of every request, and what the fleet spent."""

    row: Ints  # (R,) place among all requests that the session was ever fed
    status: npt.NDArray[np.int8]  # (R,) position in STATUSES
    first_token_s: Floats  # (R,) on the trace's clock, network included; NaN if never
    finish_s: Floats  # (R,) likewise
    dispatched_s: Floats  # (R,) when it reached its instance's queue; NaN if never
    admitted_s: Floats  # (R,) when it entered that instance's batch; NaN if never
    slot: Ints  # (R,) the instance; NOBODY if never dispatched
    served_region: npt.NDArray[np.int16]  # (R,) NOBODY if never dispatched
    network_s: Floats  # (R,) added because another region served it
    preemptions: npt.NDArray[np.int32]  # (R,)
    reused: npt.NDArray[np.int32]  # (R,) tokens of its prompt that were cached when it was admitted last
    sent_from: Ints  # (R,) the instance before `slot`, that handed it over; NOBODY; (0,) where none may
    sent_s: Floats  # (R,) when it did; NaN if never; (0,)
    came_s: Floats  # (R,) when its cache had come; NaN if never; (0,)
    joined_s: Floats  # (R,) when it entered the batch of `slot` with that cache; NaN if never; (0,)
    instance_s: Floats  # (hours, E, 4) instance-seconds in STATES, by pool, in the hours played
    kv_used: Floats  # (hours, E) token-seconds of KV memory in use at the serving instances
    kv_room: Floats  # (hours, E) token-seconds of what they had
    moved: Ints  # (hours, E, 3) moves from there: of requests that wait (queued), or decode (live); given up
    cached_tokens: int  # computed so far by prefill and decode; the last token of a request is not cached
    recomputed_tokens: int  # of these, lost by preemption and computed again
    reused_tokens: int  # of prompts, so far, that were cached when they were admitted
    events: int  # kernel events so far, for benchmarks

    @property
    def kv_share(self) -> Floats:
        """Time-mean effective memory utilisation, shape (hours, E); NaN where none served."""
        return utilisation_share(self.kv_used, self.kv_room)


def collect_outcome(
    trace: TraceArrays, fleet: FleetArrays, state: ReplayState, row: Ints, spent: FleetUsage
) -> Outcome:
    """What became of the requests of `trace`, whose places are `row`; the network delay is added here."""
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
    delay_s = fleet.network_s[trace.region, served]
    arrival_us = np.round(trace.arrival_s * 1e6).astype(np.int64)
    drawn = fleet.network_factor[arrival_us % fleet.network_factor.size]
    network_s = np.where(dispatched, delay_s * drawn, 0.0)
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
        *spent,
        int(progress.cached_tokens),
        int(progress.lost_tokens),
        int(progress.reused_tokens),
        int(progress.events),
    )


def utilisation_share(used: Floats, room: Floats) -> Floats:
    """Used over room; NaN where there was no room."""
    with np.errstate(invalid="ignore"):
        return used / room
