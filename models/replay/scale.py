"""The life of an instance, and the rules that lengthen or shorten it (SageServe 4, 6.4, 7.1)."""

from models.replay.compiled import compiled
from models.replay.events import reschedule
from models.replay.memory import integrate_kv, is_over, is_under
from models.replay.state import (
    BOOTED,
    BOOTING,
    DONATED,
    DRAINING,
    GONE,
    HOUR,
    IDLE,
    NEVER,
    NOBODY,
    SERVING,
    Fleet,
    Rules,
    State,
)

SCALINGS = ("follow", "reactive", "lt_u", "lt_ua")
FOLLOW, REACTIVE, LT_U, LT_UA = range(4)


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


@compiled
def add_instance(fleet: Fleet, state: State, endpoint: int, now: float) -> bool:
    """Get one more, from where it comes fastest; False where the caps leave none.

    A draining instance returns at once; a donated one of the same llm within minutes; any other VM of
    the region, free or donated by another llm, after a cold start.
    """
    if held(state, endpoint) >= fleet.max_instances:
        return False
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


@compiled
def make_room(fleet: Fleet, state: State, endpoint: int, now: float) -> bool:
    """Take back donated VMs of other llms until an instance fits under the cap; False if it cannot."""
    regions = fleet.preference.shape[0]
    region, llm = endpoint % regions, endpoint // regions
    gpu = fleet.gpu[llm]
    short = state.used_gpus[region, gpu] + fleet.gpus[llm] - fleet.cap_gpus[region, gpu]
    spare = 0
    for other in range(fleet.gpus.size):
        if fleet.gpu[other] == gpu:
            spare += state.instances[other * regions + region, DONATED] * fleet.gpus[other]
    if spare < short:
        return False
    while short > 0:
        most, most_donated = NOBODY, 0
        for other in range(fleet.gpus.size):
            donated = state.instances[other * regions + region, DONATED]
            if fleet.gpu[other] == gpu and donated > most_donated:
                most, most_donated = other, donated
        slot = first_with(fleet, state, most * regions + region, DONATED)
        change_status(fleet, state, slot, GONE, now)
        short -= fleet.gpus[most]
    return True


@compiled
def remove_instance(fleet: Fleet, state: State, endpoint: int, now: float) -> bool:
    """Give one up: one that still boots, else the least loaded, which finishes its work first."""
    if held(state, endpoint) <= fleet.min_instances:
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


@compiled
def follow_targets(fleet: Fleet, state: State, now: float) -> None:
    """LT-I: bring every endpoint to its target, reductions first so that their VMs can be had."""
    for endpoint in range(state.target.size):
        while held(state, endpoint) > state.target[endpoint] and remove_instance(fleet, state, endpoint, now):
            pass
    for endpoint in range(state.target.size):
        while held(state, endpoint) < state.target[endpoint] and add_instance(fleet, state, endpoint, now):
            pass


@compiled
def react(fleet: Fleet, rules: Rules, state: State, endpoint: int, now: float) -> None:
    """One step of a memory-driven rule, at most one per cooldown: add, remove, or leave.

    LT-UA's gap rule (SageServe 6.4) looks at traffic instead of memory in the last minutes of the hour.
    Taken alone it would boot for a handful of requests where next to none were forecast, so it does not
    act against the memory: no growth below the lower threshold, no shrinking above the upper one.
    """
    if rules.scaling == FOLLOW or now < state.cooldown_s[endpoint]:
        return
    count, target = held(state, endpoint), state.target[endpoint]
    over = is_over(state, endpoint, rules.scale_out_share)
    under = is_under(state, endpoint, rules.scale_in_share)
    out, in_ = over, under
    if rules.scaling != REACTIVE:
        out, in_ = over and count < target, under and count > target
    if rules.scaling == LT_UA and now - state.clock[HOUR] >= rules.correction_s:
        seen = state.seen_tokens[endpoint]
        forecast = state.forecast_tokens_per_s[endpoint] * (now - state.clock[HOUR])
        out = out or (count >= target and seen > 0 and seen >= rules.surge_ratio * forecast and not under)
        in_ = in_ or (count <= target and seen <= rules.slump_ratio * forecast and not over)
    if (out and add_instance(fleet, state, endpoint, now)) or (
        in_ and not out and remove_instance(fleet, state, endpoint, now)
    ):
        state.cooldown_s[endpoint] = now + rules.cooldown_s
