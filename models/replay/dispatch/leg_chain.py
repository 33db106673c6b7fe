"""Chains of legs: an answer is judged, and if its score is too low the next leg begins (Cascadia 3.3).

The trace has the scores, the state has the thresholds. If the score of a leg is below `go_on_below[llm]`, the
next row of its chain begins `judge_s[llm]` seconds later. It enters the fleet like an arrival, with its own
llm, prompt and answer. Otherwise the later legs are skipped (`spared`).

A plan may change the thresholds with each row. Between rows, a table of gears may choose a threshold at every
monitor tick: by the arrival rate of an llm, smoothed over a minute (CascadeServe), or by its load, the tokens
at its serving instances over those that fit there (in a burst fewer requests go on).
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.dispatch.kv_transfer import push_in_flight
from fleetcast.models.replay.fleet.scaling_signal import SMOOTHED_S
from fleetcast.models.replay.kernel_inputs import NO_INDEX, FleetArrays, Rules, TraceArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import GearTrigger, Status


@njit_call
def is_first_leg(trace: TraceArrays, request: int) -> bool:
    """Return whether the row is the first leg of its request, which arrives by itself."""
    return trace.leg.size == 0 or trace.leg[request] == 0


@njit_call
def continue_chain(trace: TraceArrays, rules: Rules, state: State, request: int, now: float) -> None:
    """After the end of a leg, begin the next one of its request, or skip all later ones."""
    llm, behind = trace.llm[request], trace.then[request]
    if behind != NO_INDEX and trace.score[request] < state.llm[llm].go_on_below:
        state.transfer[behind].ready_s = now + rules.judge_s[llm]
        push_in_flight(state, behind)
    else:
        skip_later_legs(trace, state, request)


@njit_call
def skip_later_legs(trace: TraceArrays, state: State, request: int) -> None:
    """Mark all legs after this one as ended without having begun."""
    if trace.then.size == 0:
        return
    behind = trace.then[request]
    while behind != NO_INDEX:
        state.request[behind].spared = True
        state.progress.ended += 1
        behind = trace.then[behind]


@njit_call
def choose_gears(fleet: FleetArrays, rules: Rules, state: State) -> None:
    """Choose the threshold of each llm that has gears; called at each monitor tick."""
    share = min(1.0, rules.monitor_s / SMOOTHED_S)
    for llm in range(state.llm.size):
        state.llm[llm].arrived_legs_per_s += share * (
            state.llm[llm].arrived_legs / rules.monitor_s - state.llm[llm].arrived_legs_per_s
        )
        state.llm[llm].arrived_legs = 0
    for llm in range(state.llm.size):
        observed_llm = rules.gear_llm[llm]
        if observed_llm == NO_INDEX:
            continue
        level = (
            state.llm[observed_llm].arrived_legs_per_s
            if rules.gears_by == GearTrigger.RATE
            else llm_load_share(fleet, state, observed_llm)
        )
        for gear in range(rules.gear_from.shape[1]):
            if rules.gear_from[llm, gear] <= level:
                state.llm[llm].go_on_below = rules.gear_below[llm, gear]


@njit_call
def llm_load_share(fleet: FleetArrays, state: State, llm: int) -> float:
    """Return load / KV capacity, in tokens, over an llm's serving instances; 0 if none serves."""
    load, room = 0, 0
    for pool in range(fleet.kind.size):
        if fleet.llm[pool] == llm:
            room += state.pool[pool].kv_room
            for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
                if state.instance[slot].status == Status.SERVING:
                    load += state.instance[slot].load
    return load / room if room > 0 else 0.0
