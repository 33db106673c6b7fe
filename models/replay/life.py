"""The life of an instance: booting, serving, draining, donated, gone; and where another one comes from."""

from models.replay.compiled import called, compiled
from models.replay.events import reschedule
from models.replay.memory import integrate_kv
from models.replay.pools import llm_of, stand_in_line
from models.replay.state import (
    BOOTED,
    BOOTING,
    DONATED,
    DRAINING,
    GONE,
    IDLE,
    NEVER,
    NOBODY,
    SERVING,
    Fleet,
    State,
)


@compiled
def change_status(fleet: Fleet, state: State, slot: int, status: int, now: float) -> None:
    """Move an instance on in its life; every total that depends on it moves along."""
    endpoint, llm, old = fleet.endpoint[slot], fleet.llm[slot], state.status[slot]
    account_instance(fleet, state, slot, now)
    state.status[slot] = status
    state.instances[endpoint, old] -= 1
    state.instances[endpoint, status] += 1
    region = endpoint % fleet.preference.shape[0]
    if old == GONE:
        state.used_gpus[region, fleet.gpu[llm]] += fleet.gpus[llm]
    elif status == GONE:
        state.used_gpus[region, fleet.gpu[llm]] -= fleet.gpus[llm]
    sign = (status == SERVING) - (old == SERVING)
    if sign != 0:
        integrate_kv(state, endpoint, now)
        state.kv_used[endpoint] += sign * state.kv_seen[slot]
        state.kv_room[endpoint] += sign * fleet.kv_capacity[llm]
        state.busy[endpoint] += sign * (state.interactive[slot] > 0)
        stand_in_line(fleet, state, slot)


@compiled
def account_instance(fleet: Fleet, state: State, slot: int, now: float) -> None:
    """Count the instance's time up to now under the state that it is in."""
    if state.status[slot] != GONE:
        elapsed = now - state.since_s[slot]
        state.instance_s[fleet.endpoint[slot], state.status[slot] - 1] += elapsed
    state.since_s[slot] = now


@compiled
def first_with(fleet: Fleet, state: State, endpoint: int, status: int) -> int:
    """The lowest slot of the endpoint in this status; NOBODY if none."""
    if state.instances[endpoint, status] > 0:
        for slot in range(fleet.slots[endpoint], fleet.slots[endpoint + 1]):
            if state.status[slot] == status:
                return slot
    return NOBODY


@compiled
def held(state: State, endpoint: int) -> int:
    """Instances that serve or will: what a target is compared with."""
    return state.instances[endpoint, SERVING] + state.instances[endpoint, BOOTING]


@called
def add_instance(fleet: Fleet, state: State, endpoint: int, now: float) -> bool:
    """Get one more, from where it comes fastest; False where the limits leave none.

    A draining instance returns at once; a donated one of the same llm within minutes; any other VM of
    the region, free or donated by another llm, after a cold start.
    """
    slot = first_with(fleet, state, endpoint, DRAINING)
    if slot != NOBODY:
        change_status(fleet, state, slot, SERVING, now)
        return True
    slot = first_with(fleet, state, endpoint, DONATED)
    if slot != NOBODY:
        delay_s = fleet.boot_spot_s[state.counts[BOOTED] % fleet.boot_spot_s.size]
    else:
        slot = first_with(fleet, state, endpoint, GONE)
        if slot == NOBODY or not make_room(fleet, state, endpoint, now):
            return False
        delay_s = fleet.boot_cold_s[endpoint]
    state.counts[BOOTED] += 1
    change_status(fleet, state, slot, BOOTING, now)
    reschedule(state, slot, now + delay_s)
    return True


@called
def make_room(fleet: Fleet, state: State, endpoint: int, now: float) -> bool:
    """Take back donated VMs of other llms until an instance fits under the cap; False if it cannot."""
    regions = fleet.preference.shape[0]
    region, llm = endpoint % regions, llm_of(fleet, endpoint)
    gpu = fleet.gpu[llm]
    short = state.used_gpus[region, gpu] + fleet.gpus[llm] - fleet.cap_gpus[region, gpu]
    spare = 0
    for other in range(region, state.kv_used.size, regions):
        if fleet.gpu[llm_of(fleet, other)] == gpu:
            spare += state.instances[other, DONATED] * fleet.gpus[llm_of(fleet, other)]
    if spare < short:
        return False
    while short > 0:
        most, most_donated = NOBODY, 0
        for other in range(region, state.kv_used.size, regions):
            donated = state.instances[other, DONATED]
            if fleet.gpu[llm_of(fleet, other)] == gpu and donated > most_donated:
                most, most_donated = other, donated
        slot = first_with(fleet, state, most, DONATED)
        change_status(fleet, state, slot, GONE, now)
        short -= fleet.gpus[llm_of(fleet, most)]
    return True


@called
def remove_instance(fleet: Fleet, state: State, endpoint: int, now: float) -> bool:
    """Give one up: one that still boots, else the least loaded, which finishes its work first."""
    if held(state, endpoint) <= fleet.min_instances[endpoint]:
        return False
    slot = first_with(fleet, state, endpoint, BOOTING)
    if slot != NOBODY:
        reschedule(state, slot, NEVER)
        change_status(fleet, state, slot, DONATED, now)
        return True
    least = NOBODY
    for slot in range(fleet.slots[endpoint], fleet.slots[endpoint + 1]):
        if state.status[slot] == SERVING and (least == NOBODY or state.load[slot] <= state.load[least]):
            least = slot
    change_status(fleet, state, least, DRAINING, now)
    donate_when_empty(fleet, state, least, now)
    return True


@compiled
def donate_when_empty(fleet: Fleet, state: State, slot: int, now: float) -> None:
    """A draining instance that has finished its work joins the spot pool."""
    if state.status[slot] == DRAINING and state.phase[slot] == IDLE and state.load[slot] == 0:
        change_status(fleet, state, slot, DONATED, now)
