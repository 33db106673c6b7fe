"""Teams of paired pools: a group of prefill and decode instances that boot, drain and fail together.

They are Cauchy's combos (3.2, 3.5). If team[pool] > 0, the pool's slots form blocks of that size. The block
with the same index in the paired pool is the rest of the team. KV transfers stay within a team. Targets and
limits are those of the prefill pool, which leads. A team boots as long as the slowest of its instances.
"""

from fleetcast.models.replay.compiled import njit_call
from fleetcast.models.replay.event_queue import reschedule_event
from fleetcast.models.replay.fleet.lifecycle import (
    active_instances,
    add_instance,
    change_status,
    donate_when_empty,
    has_same_gpus,
    reclaim_gpus,
    remove_instance,
    resume_serving,
    spot_boot_s,
)
from fleetcast.models.replay.kernel_inputs import NEVER, NO_INDEX, FleetArrays
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Role, Status


@njit_call
def is_led_pool(fleet: FleetArrays, pool: int) -> bool:
    """Return whether the pool is the decode side of paired pools: its instances follow the prefill side."""
    return fleet.team[pool] > 0 and fleet.role[pool] == Role.DECODE


@njit_call
def grow_pool(fleet: FleetArrays, state: State, pool: int, now: float) -> bool:
    """Add one instance, or team, from the fastest source; return False if the limits allow none."""
    if fleet.team[pool] == 0:
        return add_instance(fleet, state, pool, now)
    return add_team(fleet, state, pool, now)


@njit_call
def shrink_pool(fleet: FleetArrays, state: State, pool: int, now: float) -> bool:
    """Remove one instance, or team; return False at the minimum."""
    if fleet.team[pool] == 0:
        return remove_instance(fleet, state, pool, now)
    return remove_team(fleet, state, pool, now)


@njit_call
def add_team(fleet: FleetArrays, state: State, pool: int, now: float) -> bool:
    """Add the team whose first instance comes fastest; return False if not all of it fits under the caps."""
    team = first_team_with_status(fleet, state, pool, Status.DRAINING)
    if team == NO_INDEX:
        team = first_team_with_status(fleet, state, pool, Status.DONATED)
    if team == NO_INDEX:
        team = first_team_with_status(fleet, state, pool, Status.GONE)
    if team == NO_INDEX or not has_team_room(fleet, state, pool, team):
        return False
    delay_s = team_boot_s(fleet, state, pool, team)
    if delay_s > 0:
        state.pool[pool].next_boot_sample += 1
    # Its donated instances boot before GPUs are reclaimed, so that none of them is taken for that.
    for status in (Status.DRAINING, Status.DONATED, Status.GONE):
        for side in (pool, fleet.then[pool]):
            for slot in range(first_team_slot(fleet, side, team), first_team_slot(fleet, side, team + 1)):
                if state.instance[slot].status != status:
                    continue
                if status == Status.DRAINING:
                    resume_serving(fleet, state, slot, now)
                    continue
                if status == Status.GONE:
                    reclaim_gpus(fleet, state, side, now)
                change_status(fleet, state, slot, Status.BOOTING, now)
                reschedule_event(state, slot, now + delay_s)
    return True


@njit_call
def remove_team(fleet: FleetArrays, state: State, pool: int, now: float) -> bool:
    """Remove a booting team, else the least loaded one, which drains; return False at the minimum."""
    if active_instances(state, pool) - fleet.team[pool] < fleet.min_instances[pool]:
        return False
    team = first_team_with_status(fleet, state, pool, Status.BOOTING)
    if team == NO_INDEX:
        least = 0
        for other in range(team_count(fleet, pool)):
            load = team_load_tokens(fleet, state, pool, other)
            is_serving = state.instance[first_team_slot(fleet, pool, other)].status == Status.SERVING
            if is_serving and (team == NO_INDEX or load <= least):
                team, least = other, load
    if team == NO_INDEX:
        return False
    for side in (pool, fleet.then[pool]):
        for slot in range(first_team_slot(fleet, side, team), first_team_slot(fleet, side, team + 1)):
            if state.instance[slot].status == Status.BOOTING:
                reschedule_event(state, slot, NEVER)
                change_status(fleet, state, slot, Status.DONATED, now)
            elif state.instance[slot].status == Status.SERVING:
                change_status(fleet, state, slot, Status.DRAINING, now)
                donate_when_empty(fleet, state, slot, now)
    return True


@njit_call
def first_team_slot(fleet: FleetArrays, pool: int, team: int) -> int:
    """Return the first slot of a team in the pool."""
    return fleet.slots[pool] + team * fleet.team[pool]


@njit_call
def team_index(fleet: FleetArrays, slot: int) -> int:
    """Return the index of the slot's team in its pool."""
    return (slot - fleet.slots[fleet.pool[slot]]) // fleet.team[fleet.pool[slot]]


@njit_call
def team_count(fleet: FleetArrays, pool: int) -> int:
    """Return the number of teams in the pool's slots."""
    return (fleet.slots[pool + 1] - fleet.slots[pool]) // fleet.team[pool]


@njit_call
def first_team_with_status(fleet: FleetArrays, state: State, pool: int, status: int) -> int:
    """Return the first team whose first instance is in this status; NO_INDEX if none."""
    for team in range(team_count(fleet, pool)):
        if state.instance[first_team_slot(fleet, pool, team)].status == status:
            return team
    return NO_INDEX


@njit_call
def team_load_tokens(fleet: FleetArrays, state: State, pool: int, team: int) -> int:
    """Return the tokens that all instances of a team have to process."""
    load = 0
    for side in (pool, fleet.then[pool]):
        for slot in range(first_team_slot(fleet, side, team), first_team_slot(fleet, side, team + 1)):
            load += state.instance[slot].load
    return load


@njit_call
def has_team_room(fleet: FleetArrays, state: State, pool: int, team: int) -> bool:
    """Return whether the team's GONE instances fit under the caps if donated ones of others are reclaimed."""
    region = fleet.region[pool]
    for side in (pool, fleet.then[pool]):
        gpu = fleet.gpu[fleet.kind[side]]
        short, spare, gone = state.used_gpus[region, gpu] - fleet.cap_gpus[region, gpu], 0, 0
        for other in range(fleet.kind.size):
            if has_same_gpus(fleet, other, side):
                spare += state.instances[other, Status.DONATED] * fleet.gpus[fleet.kind[other]]
        for other in (pool, fleet.then[pool]):
            if has_same_gpus(fleet, other, side):
                for slot in range(
                    first_team_slot(fleet, other, team), first_team_slot(fleet, other, team + 1)
                ):
                    each = fleet.gpus[fleet.kind[other]]
                    gone += int(state.instance[slot].status == Status.GONE)
                    short += each * int(state.instance[slot].status == Status.GONE)
                    spare -= each * int(state.instance[slot].status == Status.DONATED)
        if gone > 0 and spare < short:
            return False
    return True


@njit_call
def team_boot_s(fleet: FleetArrays, state: State, pool: int, team: int) -> float:
    """Return the seconds until the slowest instance of the team serves; 0 if all still serve or drain."""
    longest_s = 0.0
    for side in (pool, fleet.then[pool]):
        for slot in range(first_team_slot(fleet, side, team), first_team_slot(fleet, side, team + 1)):
            if state.instance[slot].status == Status.DONATED:
                longest_s = max(
                    longest_s, spot_boot_s(fleet, state, pool) * fleet.boot_factor[fleet.kind[side]]
                )
            elif state.instance[slot].status == Status.GONE:
                longest_s = max(longest_s, fleet.boot_cold_s[side])
    return longest_s
