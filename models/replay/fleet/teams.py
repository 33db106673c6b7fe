"""Teams: instances that prefill and those that decode for them come, go and die together (Cauchy's combos).

Where team[pool] > 0 the pool stands in blocks of so many slots. The block of the same ordinal in the pool
that it hands on to is the rest of its team; requests are handed over within it. Targets and limits are those
of the pool that prefills, which leads. A team boots as one: as long as the slowest of its instances.
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
from fleetcast.models.replay.state import ReplayState
from fleetcast.models.world.mechanisms import Role, Status


@njit_call
def is_led_pool(fleet: FleetArrays, pool: int) -> bool:
    """Whether the pool's instances do as those do that hand on to them."""
    return fleet.team[pool] > 0 and fleet.role[pool] == Role.DECODE


@njit_call
def grow_pool(fleet: FleetArrays, state: ReplayState, pool: int, now: float) -> bool:
    """One more instance, or team, from where it comes fastest; False where the limits leave none."""
    if fleet.team[pool] == 0:
        return add_instance(fleet, state, pool, now)
    return add_team(fleet, state, pool, now)


@njit_call
def shrink_pool(fleet: FleetArrays, state: ReplayState, pool: int, now: float) -> bool:
    """One instance, or team, fewer; False at the least."""
    if fleet.team[pool] == 0:
        return remove_instance(fleet, state, pool, now)
    return remove_team(fleet, state, pool, now)


@njit_call
def add_team(fleet: FleetArrays, state: ReplayState, pool: int, now: float) -> bool:
    """The team whose first instance comes fastest; none where not all of it finds room."""
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
    for status in (
        Status.DRAINING,
        Status.DONATED,
        Status.GONE,
    ):  # the team's own donated ones are not what makes room
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
def remove_team(fleet: FleetArrays, state: ReplayState, pool: int, now: float) -> bool:
    """One that still boots, else the one with least to do, which finishes its work first."""
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
    """The first slot of a team in the pool."""
    return fleet.slots[pool] + team * fleet.team[pool]


@njit_call
def team_index(fleet: FleetArrays, slot: int) -> int:
    """Which team of its pool the slot is of."""
    return (slot - fleet.slots[fleet.pool[slot]]) // fleet.team[fleet.pool[slot]]


@njit_call
def team_count(fleet: FleetArrays, pool: int) -> int:
    """How many teams the pool's slots are."""
    return (fleet.slots[pool + 1] - fleet.slots[pool]) // fleet.team[pool]


@njit_call
def first_team_with_status(fleet: FleetArrays, state: ReplayState, pool: int, status: int) -> int:
    """The first team whose first instance is in this status; NOBODY if none."""
    for team in range(team_count(fleet, pool)):
        if state.instance[first_team_slot(fleet, pool, team)].status == status:
            return team
    return NO_INDEX


@njit_call
def team_load_tokens(fleet: FleetArrays, state: ReplayState, pool: int, team: int) -> int:
    """Tokens that all instances of a team have to process."""
    load = 0
    for side in (pool, fleet.then[pool]):
        for slot in range(first_team_slot(fleet, side, team), first_team_slot(fleet, side, team + 1)):
            load += state.instance[slot].load
    return load


@njit_call
def has_team_room(fleet: FleetArrays, state: ReplayState, pool: int, team: int) -> bool:
    """Whether those of the team that are gone fit under the caps, donated ones of others taken back."""
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
def team_boot_s(fleet: FleetArrays, state: ReplayState, pool: int, team: int) -> float:
    """Seconds until the slowest instance of the team serves; 0 where all do still."""
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
