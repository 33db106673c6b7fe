"""Chains of legs: an answer is judged, and where its score is too low the next leg begins (Cascadia 3.3).

The scores are the trace's, the thresholds are the state's: a leg of an llm whose score is below
`go_on_below[llm]` is followed, after `judge_s[llm]` seconds, by the next row of its chain, which enters the
fleet like an arrival, with its own llm, prompt and answer. Else the rows behind it are spared.

A plan may give other thresholds with each of its rows. Between them a table of gears may choose one at every
monitor tick: by how many requests a second come to an llm (CascadeServe), smoothed over a minute, or by how
many tokens wait and run there, of those that its serving instances hold (a valve: in a burst fewer go on).
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.kv_transfer import push_in_flight
from fleetcast.models.replay.fleet.scaling_signal import SMOOTHED_S
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import ReplayState
from fleetcast.models.world.mechanisms import GearTrigger, Status


@njit_call
def is_first_leg(trace: TraceArrays, request: int) -> bool:
    """Whether the row arrives by itself."""
    return trace.leg.size == 0 or trace.leg[request] == 0


@njit_call
def continue_chain(trace: TraceArrays, rules: Rules, state: ReplayState, request: int, now: float) -> None:
    """A leg has ended: its request goes on to the next one, or that and what is behind it is spared."""
    llm, behind = trace.llm[request], trace.then[request]
    if behind != NO_INDEX and trace.score[request] < state.llm[llm].go_on_below:
        state.transfer[behind].ready_s = now + rules.judge_s[llm]
        push_in_flight(state, behind)
    else:
        skip_later_legs(trace, state, request)


@njit_call
def skip_later_legs(trace: TraceArrays, state: ReplayState, request: int) -> None:
    """The legs behind this one will not begin."""
    if trace.then.size == 0:
        return
    behind = trace.then[request]
    while behind != NO_INDEX:
        state.request[behind].spared = True
        state.progress.ended += 1
        behind = trace.then[behind]


@njit_call
def choose_gears(fleet: FleetArrays, rules: Rules, state: ReplayState) -> None:
    """Choose, at a monitor tick, the threshold of each llm that has gears."""
    share = min(1.0, rules.monitor_s / SMOOTHED_S)
    for llm in range(state.llm.size):
        state.llm[llm].arrived_legs_per_s += share * (
            state.llm[llm].arrived_legs / rules.monitor_s - state.llm[llm].arrived_legs_per_s
        )
        state.llm[llm].arrived_legs = 0
    for llm in range(state.llm.size):
        seen = rules.gear_llm[llm]
        if seen == NO_INDEX:
            continue
        level = (
            state.llm[seen].arrived_legs_per_s
            if rules.gears_by == GearTrigger.RATE
            else llm_load_share(fleet, state, seen)
        )
        for gear in range(rules.gear_from.shape[1]):
            if rules.gear_from[llm, gear] <= level:
                state.llm[llm].go_on_below = rules.gear_below[llm, gear]


@njit_call
def llm_load_share(fleet: FleetArrays, state: ReplayState, llm: int) -> float:
    """Tokens of the requests at an llm's serving instances, of those that fit there; 0 where none serves."""
    load, room = 0, 0
    for pool in range(fleet.kind.size):
        if fleet.llm[pool] == llm:
            room += state.pool[pool].kv_room
            for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
                if state.instance[slot].status == Status.SERVING:
                    load += state.instance[slot].load
    return load / room if room > 0 else 0.0
