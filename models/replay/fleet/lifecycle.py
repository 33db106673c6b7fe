"""Lifecycle of an instance: booting, serving, draining, donated, gone; adding and removing instances."""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.engine.kv_memory import instance_kv_capacity, integrate_kv, kv_tokens_in_use
from fleetcast.models.replay.engine.prefix import clear_prefix_cache
from fleetcast.models.replay.engine.ranks import rank_slot
from fleetcast.models.replay.event_queue import reschedule_event
from fleetcast.models.replay.fleet.instance_load import update_line_position
from fleetcast.models.replay.kernel_inputs import NEVER, NO_INDEX, FleetArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Phase, Prefix, Status


@njit_call
def change_status(fleet: FleetArrays, state: State, slot: int, status: int, now: float) -> None:
    """Change the status of an instance, and all totals that depend on it."""
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
        for rank in range(fleet.ranks[kind]):
            clear_prefix_cache(state, rank_slot(fleet, slot, rank))
    sign = int(status == Status.SERVING) - int(old == Status.SERVING)
    if sign != 0:
        integrate_kv(state, pool, now)
        state.pool[pool].kv_used += sign * kv_tokens_in_use(fleet, state, slot)
        state.pool[pool].kv_room += sign * instance_kv_capacity(fleet, kind)
        state.pool[pool].busy_instances += sign * int(instance.interactive > 0)
        update_line_position(fleet, state, slot)


@njit_call
def account_instance(fleet: FleetArrays, state: State, slot: int, now: float) -> None:
    """Add the instance's time up to now to the total of its status."""
    instance = state.instance[slot]
    if instance.status != Status.GONE:
        elapsed = now - instance.accounted_until_s
        state.instance_s[fleet.pool[slot], instance.status - 1] += elapsed
    instance.accounted_until_s = now


@njit_call
def first_slot_with_status(fleet: FleetArrays, state: State, pool: int, status: int) -> int:
    """Return the lowest slot of the pool in this status; NO_INDEX if none."""
    if state.instances[pool, status] > 0:
        for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
            if state.instance[slot].status == status:
                return slot
    return NO_INDEX


@njit_call
def active_instances(state: State, pool: int) -> int:
    """Return the number of serving and booting instances, which a target is compared with."""
    return state.instances[pool, Status.SERVING] + state.instances[pool, Status.BOOTING]


@njit_call
def add_instance(fleet: FleetArrays, state: State, pool: int, now: float) -> bool:
    """Add one instance from the fastest source; return False if the limits allow none.

    A draining instance returns at once, a donated one of the same llm within minutes, any other VM of the
    region, free or donated by another llm, after a cold start.
    """
    slot = first_slot_with_status(fleet, state, pool, Status.DRAINING)
    if slot != NO_INDEX:
        resume_serving(fleet, state, slot, now)
        return True
    slot = first_slot_with_status(fleet, state, pool, Status.DONATED)
    if slot != NO_INDEX:
        delay_s = spot_boot_s(fleet, state, pool) * fleet.boot_factor[fleet.kind[pool]]
    else:
        slot = first_slot_with_status(fleet, state, pool, Status.GONE)
        if slot == NO_INDEX or not reclaim_gpus(fleet, state, pool, now):
            return False
        delay_s = fleet.boot_cold_s[pool]
    state.pool[pool].next_boot_sample += 1
    change_status(fleet, state, slot, Status.BOOTING, now)
    reschedule_event(state, slot, now + delay_s)
    return True


@njit_call
def spot_boot_s(fleet: FleetArrays, state: State, pool: int) -> float:
    """Return the seconds in which the pool's next donated instance returns, for a boot_factor of 1.

    Each pool goes through the samples by itself, so that no llm's boots depend on another's.
    """
    return fleet.boot_spot_s[state.pool[pool].next_boot_sample % fleet.boot_spot_s.size]


@njit_call
def resume_serving(fleet: FleetArrays, state: State, slot: int, now: float) -> None:
    """Let a draining instance serve again."""
    instance = state.instance[slot]
    if instance.donation_due_s != NEVER:
        instance.donation_due_s = NEVER
        reschedule_event(state, slot, NEVER)
    change_status(fleet, state, slot, Status.SERVING, now)


@njit_call
def reclaim_gpus(fleet: FleetArrays, state: State, pool: int, now: float) -> bool:
    """Take back donated VMs until an instance of the pool fits under the cap; return False if it cannot."""
    region, kind = fleet.region[pool], fleet.kind[pool]
    short = state.used_gpus[region, fleet.gpu[kind]] + fleet.gpus[kind]
    short -= fleet.cap_gpus[region, fleet.gpu[kind]]
    spare = 0
    for other in range(fleet.kind.size):
        if has_same_gpus(fleet, other, pool):
            spare += state.instances[other, Status.DONATED] * fleet.gpus[fleet.kind[other]]
    if spare < short:
        return False
    while short > 0:
        most, most_donated = NO_INDEX, 0
        for other in range(fleet.kind.size):
            donated = state.instances[other, Status.DONATED]
            if donated > most_donated and has_same_gpus(fleet, other, pool):
                most, most_donated = other, donated
        slot = first_slot_with_status(fleet, state, most, Status.DONATED)
        change_status(fleet, state, slot, Status.GONE, now)
        short -= fleet.gpus[fleet.kind[most]]
    return True


@njit_call
def has_same_gpus(fleet: FleetArrays, pool: int, other: int) -> bool:
    """Return whether both pools use the same GPUs: one region, one type."""
    is_same_type = fleet.gpu[fleet.kind[pool]] == fleet.gpu[fleet.kind[other]]
    return fleet.region[pool] == fleet.region[other] and is_same_type


@njit_call
def remove_instance(fleet: FleetArrays, state: State, pool: int, now: float) -> bool:
    """Remove one instance: a booting one, else the least loaded one, which drains; False at the minimum."""
    if active_instances(state, pool) <= fleet.min_instances[pool]:
        return False
    slot = first_slot_with_status(fleet, state, pool, Status.BOOTING)
    if slot != NO_INDEX:
        reschedule_event(state, slot, NEVER)
        change_status(fleet, state, slot, Status.DONATED, now)
        return True
    least = NO_INDEX
    for slot in range(fleet.slots[pool], fleet.slots[pool + 1]):
        if state.instance[slot].status == Status.SERVING and (
            least == NO_INDEX or state.instance[slot].load <= state.instance[least].load
        ):
            least = slot
    change_status(fleet, state, least, Status.DRAINING, now)
    donate_when_empty(fleet, state, least, now)
    return True


@njit_call
def donate_when_empty(fleet: FleetArrays, state: State, slot: int, now: float) -> None:
    """Donate a draining instance to the spot pool, `donate_s` seconds after it has finished its work."""
    instance = state.instance[slot]
    if instance.status != Status.DRAINING or instance.phase != Phase.IDLE or instance.load > 0:
        return
    if instance.donation_due_s == NEVER:
        instance.donation_due_s = now + fleet.donate_s
    if now < instance.donation_due_s:
        reschedule_event(state, slot, instance.donation_due_s)
    else:
        instance.donation_due_s = NEVER
        change_status(fleet, state, slot, Status.DONATED, now)
