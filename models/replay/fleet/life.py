"""The life of an instance: booting, serving, draining, donated, gone; and where another one comes from."""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.engine.memory import integrate_kv
from fleetcast.models.replay.engine.prefix import forget_all
from fleetcast.models.replay.events import reschedule
from fleetcast.models.replay.fleet.pools import stand_in_line
from fleetcast.models.replay.inputs import NEVER, NOBODY, Fleet
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Phase, Prefix, Status


@called
def change_status(fleet: Fleet, state: State, slot: int, status: int, now: float) -> None:
    """Move an instance on in its life; every total that depends on it moves along."""
    instance = state.instance[slot]
    pool, kind, old = fleet.pool[slot], fleet.slot_kind[slot], instance.status
    account_instance(fleet, state, slot, now)
    instance.status = status
    state.instances[pool, old] -= 1
    state.instances[pool, status] += 1
    if old == Status.GONE:
        state.used_gpus[fleet.region[pool], fleet.gpu[kind]] += fleet.gpus[kind]
    elif status == Status.GONE:
        state.used_gpus[fleet.region[pool], fleet.gpu[kind]] -= fleet.gpus[kind]
    if fleet.prefix == Prefix.BLOCKS and status in (Status.GONE, Status.DONATED):
        forget_all(state, slot)
    sign = int(status == Status.SERVING) - int(old == Status.SERVING)
    if sign != 0:
        integrate_kv(state, pool, now)
        state.pool[pool].kv_used += sign * instance.kv_seen
        state.pool[pool].kv_room += sign * fleet.kv_capacity[kind]
        state.pool[pool].busy += sign * int(instance.interactive > 0)
        stand_in_line(fleet, state, slot)


@called
def account_instance(fleet: Fleet, state: State, slot: int, now: float) -> None:
    """Count the instance's time up to now under the state that it is in."""
    instance = state.instance[slot]
    if instance.status != Status.GONE:
        elapsed = now - instance.since_s
        state.instance_s[fleet.pool[slot], instance.status - 1] += elapsed
    instance.since_s = now


@called
def first_with(fleet: Fleet, state: State, pool: int, status: int) -> int:
    """The lowest slot of the pool in this status; NOBODY if none."""
    if state.instances[pool, status] > 0:
        for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
            if state.instance[slot].status == status:
                return slot
    return NOBODY


@called
def held(state: State, pool: int) -> int:
    """Instances that serve or will: what a target is compared with."""
    return state.instances[pool, Status.SERVING] + state.instances[pool, Status.BOOTING]


@called
def add_instance(fleet: Fleet, state: State, pool: int, now: float) -> bool:
    """Get one more, from where it comes fastest; False where the limits leave none.

    A draining instance returns at once; a donated one of the same llm within minutes; any other VM of
    the region, free or donated by another llm, after a cold start.
    """
    slot = first_with(fleet, state, pool, Status.DRAINING)
    if slot != NOBODY:
        return_to_work(fleet, state, slot, now)
        return True
    slot = first_with(fleet, state, pool, Status.DONATED)
    if slot != NOBODY:
        delay_s = spot_s(fleet, state, pool) * fleet.boot_factor[fleet.kind[pool]]
    else:
        slot = first_with(fleet, state, pool, Status.GONE)
        if slot == NOBODY or not make_room(fleet, state, pool, now):
            return False
        delay_s = fleet.boot_cold_s[pool]
    state.pool[pool].booted += 1
    change_status(fleet, state, slot, Status.BOOTING, now)
    reschedule(state, slot, now + delay_s)
    return True


@called
def spot_s(fleet: Fleet, state: State, pool: int) -> float:
    """Seconds in which the pool's next donated instance comes back, on a GPU whose factor is 1.

    Each pool goes through the draws by itself, so that no llm's boots depend on another's.
    """
    return fleet.boot_spot_s[state.pool[pool].booted % fleet.boot_spot_s.size]


@called
def return_to_work(fleet: Fleet, state: State, slot: int, now: float) -> None:
    """A draining instance serves again."""
    instance = state.instance[slot]
    if instance.leaves_s != NEVER:
        instance.leaves_s = NEVER
        reschedule(state, slot, NEVER)
    change_status(fleet, state, slot, Status.SERVING, now)


@called
def make_room(fleet: Fleet, state: State, pool: int, now: float) -> bool:
    """Take back donated VMs of other llms until an instance fits under the cap; False if it cannot."""
    region, kind = fleet.region[pool], fleet.kind[pool]
    short = state.used_gpus[region, fleet.gpu[kind]] + fleet.gpus[kind]
    short -= fleet.cap_gpus[region, fleet.gpu[kind]]
    spare = 0
    for other in range(fleet.kind.size):
        if share_gpus(fleet, other, pool):
            spare += state.instances[other, Status.DONATED] * fleet.gpus[fleet.kind[other]]
    if spare < short:
        return False
    while short > 0:
        most, most_donated = NOBODY, 0
        for other in range(fleet.kind.size):
            donated = state.instances[other, Status.DONATED]
            if donated > most_donated and share_gpus(fleet, other, pool):
                most, most_donated = other, donated
        slot = first_with(fleet, state, most, Status.DONATED)
        change_status(fleet, state, slot, Status.GONE, now)
        short -= fleet.gpus[fleet.kind[most]]
    return True


@called
def share_gpus(fleet: Fleet, pool: int, other: int) -> bool:
    """Whether both pools draw on the same GPUs: one region, one type."""
    is_same_type = fleet.gpu[fleet.kind[pool]] == fleet.gpu[fleet.kind[other]]
    return fleet.region[pool] == fleet.region[other] and is_same_type


@called
def remove_instance(fleet: Fleet, state: State, pool: int, now: float) -> bool:
    """Give one up: one that still boots, else the least loaded, which finishes its work first."""
    if held(state, pool) <= fleet.min_instances[pool]:
        return False
    slot = first_with(fleet, state, pool, Status.BOOTING)
    if slot != NOBODY:
        reschedule(state, slot, NEVER)
        change_status(fleet, state, slot, Status.DONATED, now)
        return True
    least = NOBODY
    for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
        if state.instance[slot].status == Status.SERVING and (
            least == NOBODY or state.instance[slot].load <= state.instance[least].load
        ):
            least = slot
    change_status(fleet, state, least, Status.DRAINING, now)
    donate_when_empty(fleet, state, least, now)
    return True


@called
def donate_when_empty(fleet: Fleet, state: State, slot: int, now: float) -> None:
    """A draining instance that has finished its work joins the spot pool, once it has changed hands."""
    instance = state.instance[slot]
    if instance.status != Status.DRAINING or instance.phase != Phase.IDLE or instance.load > 0:
        return
    if instance.leaves_s == NEVER:
        instance.leaves_s = now + fleet.donate_s
    if now < instance.leaves_s:
        reschedule(state, slot, instance.leaves_s)
    else:
        instance.leaves_s = NEVER
        change_status(fleet, state, slot, Status.DONATED, now)
