"""The schedule of a policy of one's own: it decides during the replay, from the fleet at that time."""

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.replay.run import Schedule, Session
from fleetcast.models.world.calendar import DAY_S, HOUR_S
from fleetcast.models.world.mechanisms import STATES
from fleetcast.models.world.own_policies import FleetObservation, OwnPolicy
from fleetcast.models.world.plan_grid import Grid

_SERVING, _BOOTING = STATES.index("serving"), STATES.index("booting")


def own_schedule(name: str, policy: OwnPolicy, grid: Grid, capacity: Floats, start: Floats) -> Schedule:
    """Return the schedule of the policy `name`.

    `capacity` is that of one option, (services, regions, options) tokens/s; `start` has shape (pools,).
    """
    each = capacity[grid.cells] / grid.instances_per_option

    def decide(session: Session, now_s: float) -> Floats:
        seen = observe_fleet(session, now_s, grid, each)
        wanted = np.asarray(policy.decide(seen), np.float64)
        if wanted.shape != start.shape or not np.isfinite(wanted).all():
            raise ValueError(
                f"{name} at {seen.now_s:.0f} s: got {wanted.shape} instances {wanted.ravel()[:5]}, needed a "
                f"finite number for each of the {start.size} pools. Change its function decide."
            )
        return np.clip(np.ceil(wanted), seen.least, seen.most)

    return Schedule(None, None, start, HOUR_S, rows_per_hour=60 // policy.every_minutes, decide=decide)


def observe_fleet(session: Session, now_s: float, grid: Grid, capacity: Floats) -> FleetObservation:
    """Return what a policy observes of a session at a time; `capacity` has shape (pools,)."""
    pool, states = session.state.pool, session.instances()
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
        memory_share=np.divide(pool["kv_used"], room, out=np.zeros(room.size), where=room > 0),
        capacity_tokens_per_s=capacity.copy(),
        least=np.array([row.min_instances for row in grid.pools]),
        most=np.array([row.max_instances for row in grid.pools]),
    )
