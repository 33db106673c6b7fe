"""Teams: instances that prefill and those that decode for them come, go and die together (Cauchy's combos).

Where team[pool] > 0 the pool stands in blocks of so many slots. The block of the same ordinal in the pool
that it hands on to is the rest of its team; requests are handed over within it. Targets and limits are those
of the pool that prefills, which leads. A team boots as one: as long as the slowest of its instances.
"""

from fleetcast.models.replay.compiled import called
from fleetcast.models.replay.events import reschedule
from fleetcast.models.replay.fleet.life import (
    add_instance,
    change_status,
    donate_when_empty,
    held,
    make_room,
    remove_instance,
    return_to_work,
    share_gpus,
    spot_s,
)
from fleetcast.models.replay.inputs import NEVER, NOBODY, Fleet
from fleetcast.models.replay.state import State
from fleetcast.models.world.mechanisms import Role, Status


@called
def is_led(fleet: Fleet, pool: int) -> bool:
    """Whether the pool's instances do as those do that hand on to them."""
    return fleet.team[pool] > 0 and fleet.role[pool] == Role.DECODE


@called
def grow(fleet: Fleet, state: State, pool: int, now: float) -> bool:
    """One more instance, or team, from where it comes fastest; False where the limits leave none."""
    if fleet.team[pool] == 0:
        return add_instance(fleet, state, pool, now)
    return add_team(fleet, state, pool, now)


@called
def shrink(fleet: Fleet, state: State, pool: int, now: float) -> bool:
    """One instance, or team, fewer; False at the least."""
    if fleet.team[pool] == 0:
        return remove_instance(fleet, state, pool, now)
    return remove_team(fleet, state, pool, now)


@called
def add_team(fleet: Fleet, state: State, pool: int, now: float) -> bool:
    """The team whose first instance comes fastest; none where not all of it finds room."""
    team = team_with(fleet, state, pool, Status.DRAINING)
    if team == NOBODY:
        team = team_with(fleet, state, pool, Status.DONATED)
    if team == NOBODY:
        team = team_with(fleet, state, pool, Status.GONE)
    if team == NOBODY or not has_room(fleet, state, pool, team):
        return False
    delay_s = team_boot_s(fleet, state, pool, team)
    if delay_s > 0:
        state.pool[pool].booted += 1
    for status in (
        Status.DRAINING,
        Status.DONATED,
        Status.GONE,
    ):  # the team's own donated ones are not what makes room
        for side in (pool, fleet.then[pool]):
            for slot in range(first_slot(fleet, side, team), first_slot(fleet, side, team + 1)):
                if state.instance[slot].status != status:
                    continue
                if status == Status.DRAINING:
                    return_to_work(fleet, state, slot, now)
                    continue
                if status == Status.GONE:
                    make_room(fleet, state, side, now)
                change_status(fleet, state, slot, Status.BOOTING, now)
                reschedule(state, slot, now + delay_s)
    return True


@called
def remove_team(fleet: Fleet, state: State, pool: int, now: float) -> bool:
    """One that still boots, else the one with least to do, which finishes its work first."""
    if held(state, pool) - fleet.team[pool] < fleet.min_instances[pool]:
        return False
    team = team_with(fleet, state, pool, Status.BOOTING)
    if team == NOBODY:
        least = 0
        for other in range(teams_of(fleet, pool)):
            load = load_of(fleet, state, pool, other)
            is_serving = state.instance[first_slot(fleet, pool, other)].status == Status.SERVING
            if is_serving and (team == NOBODY or load <= least):
                team, least = other, load
    if team == NOBODY:
        return False
    for side in (pool, fleet.then[pool]):
        for slot in range(first_slot(fleet, side, team), first_slot(fleet, side, team + 1)):
            if state.instance[slot].status == Status.BOOTING:
                reschedule(state, slot, NEVER)
                change_status(fleet, state, slot, Status.DONATED, now)
            elif state.instance[slot].status == Status.SERVING:
                change_status(fleet, state, slot, Status.DRAINING, now)
                donate_when_empty(fleet, state, slot, now)
    return True


@called
def first_slot(fleet: Fleet, pool: int, team: int) -> int:
    """The first slot of a team in the pool."""
    return fleet.slots[pool] + team * fleet.team[pool]


@called
def team_of(fleet: Fleet, slot: int) -> int:
    """Which team of its pool the slot is of."""
    return (slot - fleet.slots[fleet.pool[slot]]) // fleet.team[fleet.pool[slot]]


@called
def teams_of(fleet: Fleet, pool: int) -> int:
    """How many teams the pool's slots are."""
    return (fleet.slots[pool + 1] - fleet.slots[pool]) // fleet.team[pool]


@called
def team_with(fleet: Fleet, state: State, pool: int, status: int) -> int:
    """The first team whose first instance is in this status; NOBODY if none."""
    for team in range(teams_of(fleet, pool)):
        if state.instance[first_slot(fleet, pool, team)].status == status:
            return team
    return NOBODY


@called
def load_of(fleet: Fleet, state: State, pool: int, team: int) -> int:
    """Tokens that all instances of a team have to process."""
    load = 0
    for side in (pool, fleet.then[pool]):
        for slot in range(first_slot(fleet, side, team), first_slot(fleet, side, team + 1)):
            load += state.instance[slot].load
    return load


@called
def has_room(fleet: Fleet, state: State, pool: int, team: int) -> bool:
    """Whether those of the team that are gone fit under the caps, donated ones of others taken back."""
    region = fleet.region[pool]
    for side in (pool, fleet.then[pool]):
        gpu = fleet.gpu[fleet.kind[side]]
        short, spare, gone = state.used_gpus[region, gpu] - fleet.cap_gpus[region, gpu], 0, 0
        for other in range(fleet.kind.size):
            if share_gpus(fleet, other, side):
                spare += state.instances[other, Status.DONATED] * fleet.gpus[fleet.kind[other]]
        for other in (pool, fleet.then[pool]):
            if share_gpus(fleet, other, side):
                for slot in range(first_slot(fleet, other, team), first_slot(fleet, other, team + 1)):
                    each = fleet.gpus[fleet.kind[other]]
                    gone += int(state.instance[slot].status == Status.GONE)
                    short += each * int(state.instance[slot].status == Status.GONE)
                    spare -= each * int(state.instance[slot].status == Status.DONATED)
        if gone > 0 and spare < short:
            return False
    return True


@called
def team_boot_s(fleet: Fleet, state: State, pool: int, team: int) -> float:
    """Seconds until the slowest instance of the team serves; 0 where all do still."""
    longest_s = 0.0
    for side in (pool, fleet.then[pool]):
        for slot in range(first_slot(fleet, side, team), first_slot(fleet, side, team + 1)):
            if state.instance[slot].status == Status.DONATED:
                longest_s = max(longest_s, spot_s(fleet, state, pool) * fleet.boot_factor[fleet.kind[side]])
            elif state.instance[slot].status == Status.GONE:
                longest_s = max(longest_s, fleet.boot_cold_s[side])
    return longest_s
