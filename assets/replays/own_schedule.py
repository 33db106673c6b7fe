"""The schedule of a policy of one's own: it decides during the replay, from the fleet at that time."""

from typing import Any

import numpy as np

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.replay.fleet.scaling_rules import due_tokens_per_s
from fleetcast.models.replay.run import Schedule, Session
from fleetcast.models.world.calendar import DAY_S, HOUR_S
from fleetcast.models.world.installed_objects import describe_own_error, to_numbers
from fleetcast.models.world.mechanisms import STATES
from fleetcast.models.world.own_policies import FleetObservation, OwnPolicy
from fleetcast.models.world.plan_grid import Grid

_SERVING, _BOOTING = STATES.index("serving"), STATES.index("booting")


def own_schedule(
    name: str,
    policy: OwnPolicy,
    grid: Grid,
    capacity: Floats,
    start: Floats,
    decisions_per_hour: int | None = None,
) -> Schedule:
    """Return the schedule of the policy `name`, which decides so often, or every `policy.every_minutes`.

    `capacity` is that of one option, (services, regions, options) tokens/s; `start` has shape (pools,).
    """
    decisions_per_hour = decisions_per_hour or 60 // policy.every_minutes
    each = grid.instance_capacity(capacity)

    def decide(session: Session, now_s: float) -> Floats:
        seen = observe_fleet(session, now_s, grid, each)
        found = policy.decide(seen)
        wanted = to_numbers(found)
        if wanted.shape != start.shape or not np.isfinite(wanted).all():
            raise ValueError(
                f"{name} at {seen.now_s:.0f} s: got {str(found)[:40]!r}, needed a "
                f"finite number for each of the {start.size} pools. Change its function decide."
            )
        return np.clip(np.ceil(wanted), seen.least, seen.most)

    return Schedule(None, None, start, HOUR_S, rows_per_hour=decisions_per_hour, decide=decide)


def with_named_errors(name: str, policy: OwnPolicy) -> OwnPolicy:
    """Return the policy `name` whose error is a ValueError of one line, with the line of its code."""

    def decide(seen: FleetObservation) -> Any:
        try:
            return policy.decide(seen)
        except Exception as error:
            raise ValueError(
                f"{name} at {seen.now_s:.0f} s: its function decide {describe_own_error(error)}"
            ) from error

    return policy._replace(decide=decide)


def observe_fleet(session: Session, now_s: float, grid: Grid, capacity: Floats) -> FleetObservation:
    """Return what a policy observes of a session at a time; `capacity` has shape (pools,)."""
    pool, states = session.state.pool, session.instances()
    running = states[:, _SERVING] + states[:, _BOOTING]
    room = pool["kv_room"]
    return FleetObservation(
        now_s=now_s % DAY_S,
        llm=tuple(row.kind.llm for row in grid.pools),
        region=tuple(row.region for row in grid.pools),
        gpu=tuple(row.kind.gpu for row in grid.pools),
        serving=states[:, _SERVING].copy(),
        booting=states[:, _BOOTING].copy(),
        arriving_tokens_per_s=pool["rate_tokens_per_s"].copy(),
        waiting_tokens=pool["waiting_tokens"].astype(np.float64),
        due_tokens_per_s=pool_due_tokens_per_s(session, now_s, running, capacity),
        memory_share=np.divide(pool["kv_used"], room, out=np.zeros(room.size), where=room > 0),
        capacity_tokens_per_s=capacity.copy(),
        least=np.array([row.min_instances for row in grid.pools]),
        most=np.array([row.max_instances for row in grid.pools]),
    )


def pool_due_tokens_per_s(session: Session, now_s: float, running: Ints, capacity: Floats) -> Floats:
    """Return the deferred prompts that are due, (pools,) tokens/s, by its part of the llm's capacity.

    `running`: (pools,) instances; `capacity`: (pools,) tokens/s of one.
    """
    in_python: Any = due_tokens_per_s  # the kernel's function, not compiled
    fleet, due = session.fleet, np.zeros(capacity.size)
    for llm in range(session.state.llm.size):
        own = fleet.llm == llm
        sustained = running[own] * capacity[own]
        if sustained.sum() > 0:
            of_llm = in_python.py_func(session.trace, session.rules, session.state, llm, now_s)
            due[own] = of_llm * sustained / sustained.sum()
    return due
