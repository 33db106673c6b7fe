"""Build the table of a replay's fleet by hour: instance-seconds by state, memory in use, prices."""

from collections.abc import Iterable
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings, midnight
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.replay.kernel_inputs import FleetArrays
from fleetcast.models.replay.session.outcome import Outcome, utilisation_share
from fleetcast.models.world.mechanisms import ROLES, STATES

MOVE_COLUMNS = ("moved_queued", "moved_live", "moves_given_up")  # of Outcome.moved


def fleet_hours_table(settings: RunSettings, day: date, fleet: FleetArrays, outcome: Outcome) -> pa.Table:
    """Return a row per hour, llm, role, region and kind: seconds by state, memory in use, the GPU's price."""
    catalogue = settings.catalogue
    llms, regions = list(catalogue.llms), list(catalogue.regions)
    usd = np.array([gpu.usd_per_hour for gpu in catalogue.gpus.values()])
    titles, title_of_pool = np.unique(gpu_titles(settings, fleet), return_inverse=True)
    pools = np.stack([fleet.llm, fleet.region, fleet.kind, fleet.role, title_of_pool])
    rows, row_of_pool = np.unique(pools, axis=1, return_inverse=True)
    llm, region, kind, role, title = (np.tile(column, HOURS_OF_DAY) for column in rows)

    def sum_pools(by_pool: Floats | Ints) -> Floats:
        """Add up equal pools: (hours, pools, ...) -> (hours * rows, ...)."""
        total = np.zeros((len(by_pool), rows.shape[1], *by_pool.shape[2:]))
        for pool, row in enumerate(row_of_pool.ravel()):
            total[:, row] += by_pool[:, pool]
        return total.reshape(-1, *by_pool.shape[2:])

    hour = np.repeat(np.arange(HOURS_OF_DAY), rows.shape[1]) * np.timedelta64(timedelta(hours=1))
    start = np.datetime64(midnight(day).replace(tzinfo=None), "us") + hour
    states = sum_pools(outcome.instance_s).T
    gpu = fleet.gpu[kind]
    return pa.table(
        {
            "hour_start": pa.array(start).cast(pa.timestamp("us", "UTC")),
            "llm": pa.array(llms).take(pa.array(llm)),
            "role": pa.array(ROLES).take(pa.array(role)),
            "served_region": pa.array(regions).take(pa.array(region)),
            "gpu": pa.array(titles).take(pa.array(title)),
            "gpus_per_instance": fleet.gpus[kind],
            **{f"{state}_s": pa.array(seconds) for state, seconds in zip(STATES, states, strict=True)},
            "kv_utilisation_share": _or_null(
                utilisation_share(sum_pools(outcome.kv_used), sum_pools(outcome.kv_room))
            ),
            "usd_per_gpu_hour": usd[gpu],
            "board_w": _or_null(_board_w(settings, zip(llm, gpu, fleet.gpus[kind], strict=True))),
            **dict(zip(MOVE_COLUMNS, sum_pools(outcome.moved).astype(np.int64).T, strict=True)),
        }
    )


def gpu_titles(settings: RunSettings, fleet: FleetArrays) -> NDArray[np.str_]:
    """Return the GPU type of each pool, with its engine if it has a name, shape (pools,)."""
    titles = [row.deployment.gpu_title for row in settings.grid.pools]
    return np.tile(titles, fleet.kind.size // len(titles))


def _board_w(settings: RunSettings, kinds: Iterable[tuple[int, int, int]]) -> Floats:
    """Return the measured W of a working GPU's board, (kinds,), for codes (llm, GPU type, GPUs), else NaN."""
    catalogue = settings.catalogue
    llms, gpus = list(catalogue.llms), list(catalogue.gpus)
    known = {(p.llm, p.gpu, p.tensor_parallel): p.board_w for p in catalogue.latency if p.board_w}
    return np.array([known.get((llms[llm], gpus[gpu], int(n)), np.nan) for llm, gpu, n in kinds])


def _or_null(values: Floats) -> pa.Array:
    return pa.array(values, from_pandas=True)  # NaN becomes null
