"""The fleet of a replay by the hour, as a table: instance-seconds by state, memory in use, prices."""

from collections.abc import Iterable
from datetime import date, timedelta

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings, midnight
from fleetcast.models.replay.kernel_inputs import FleetArrays
from fleetcast.models.replay.session.outcome import Outcome, utilisation_share
from fleetcast.models.world.mechanisms import ROLES, STATES

MOVE_COLUMNS = ("moved_queued", "moved_live", "moves_given_up")  # of Outcome.moved


def fleet_hours_table(settings: RunSettings, day: date, fleet: FleetArrays, outcome: Outcome) -> pa.Table:
    """One row per hour, llm, role, region and kind: instance-seconds by state, memory in use, GPU's price."""
    catalogue = settings.catalogue
    llms, regions, gpus = list(catalogue.llms), list(catalogue.regions), list(catalogue.gpus)
    usd = np.array([gpu.usd_per_hour for gpu in catalogue.gpus.values()])
    of_pools = np.stack([fleet.llm, fleet.region, fleet.kind, fleet.role])
    rows, of_row = np.unique(of_pools, axis=1, return_inverse=True)
    llm, region, kind, role = (np.tile(column, HOURS_OF_DAY) for column in rows)

    def together(of_pools: np.ndarray) -> np.ndarray:
        """(hours, pools, ...) -> (hours * rows, ...): the pools of a kind are counted together."""
        total = np.zeros((len(of_pools), rows.shape[1], *of_pools.shape[2:]))
        for pool, row in enumerate(of_row.ravel()):
            total[:, row] += of_pools[:, pool]
        return total.reshape(-1, *of_pools.shape[2:])

    hour = np.repeat(np.arange(HOURS_OF_DAY), rows.shape[1]) * np.timedelta64(timedelta(hours=1))
    start = np.datetime64(midnight(day).replace(tzinfo=None), "us") + hour
    states = together(outcome.instance_s).T
    gpu = fleet.gpu[kind]
    return pa.table(
        {
            "hour_start": pa.array(start).cast(pa.timestamp("us", "UTC")),
            "llm": pa.array(llms).take(pa.array(llm)),
            "role": pa.array(ROLES).take(pa.array(role)),
            "region": pa.array(regions).take(pa.array(region)),
            "gpu": pa.array(gpus).take(pa.array(gpu)),
            "gpus_per_instance": fleet.gpus[kind],
            **{f"{state}_s": pa.array(seconds) for state, seconds in zip(STATES, states, strict=True)},
            "kv_utilisation_share": _or_null(
                utilisation_share(together(outcome.kv_used), together(outcome.kv_room))
            ),
            "usd_per_gpu_hour": usd[gpu],
            "board_w": _or_null(_board_w(settings, zip(llm, gpu, fleet.gpus[kind], strict=True))),
            **dict(zip(MOVE_COLUMNS, together(outcome.moved).astype(np.int64).T, strict=True)),
        }
    )


def _board_w(settings: RunSettings, kinds: Iterable[tuple[int, int, int]]) -> np.ndarray:
    """Measured W of a GPU's board at work, for (llm, GPU type, GPUs) as codes; nan where nobody measured."""
    catalogue = settings.catalogue
    llms, gpus = list(catalogue.llms), list(catalogue.gpus)
    known = {(p.llm, p.gpu, p.tensor_parallel): p.board_w for p in catalogue.latency if p.board_w}
    return np.array([known.get((llms[llm], gpus[gpu], int(n)), np.nan) for llm, gpu, n in kinds])


def _or_null(values: np.ndarray) -> pa.Array:
    return pa.array(values, from_pandas=True)  # nan becomes null
