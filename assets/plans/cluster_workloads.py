"""The workloads of one cluster that a plan scales, and how many replicas of each it wants when.

A kind of an llm is the workload LLM-GPU in the cluster of its region, with its number of GPUs where there are
several such, and with its role where it prefills or decodes. A plan says who serves; a replica that shall
serve has to be asked for as long before as it takes to boot, so what comes is brought forward by that, and
what goes is not.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.plan_export import WORKLOAD_KIND_COLUMNS
from fleetcast.models.aliases import Row
from fleetcast.models.replay.session.fleet_arrays import boot_cold_s
from fleetcast.models.world.plan_grid import Grid


class ReplicaInterval(NamedTuple):
    """So many replicas for a while, as a row of the plan has decided."""

    start: datetime
    end: datetime
    replicas: int
    decision_id: str


class ClusterWorkload(NamedTuple):
    """Like instances of an llm in one cluster."""

    name: str  # as Kubernetes takes it
    rows: Sequence[Row]  # of the plan, in order of time
    least: int  # instances of the config's minimum
    most: int  # of its maximum
    boot_s: float  # of a cold start with the weights where they are

    @property
    def usd_per_hour(self) -> float:
        """Of one replica; 0 where the plan never holds any."""
        held = next((row for row in self.rows if row["instances"]), None)
        return 0.0 if held is None else held["usd"] / held["instances"] / (self._slot / timedelta(hours=1))

    @property
    def _slot(self) -> timedelta:
        starts = [row["hour_start"] for row in self.rows]
        return starts[1] - starts[0] if len(starts) > 1 else timedelta(hours=1)

    def stretches(self, lead: timedelta = timedelta(0)) -> list[ReplicaInterval]:
        """What to hold when, `lead` before a replica has to be there: the largest count of [t, t + lead]."""
        begins = self.rows[0]["hour_start"]
        starts = [row["hour_start"] for row in self.rows]
        moments = sorted({begins, *starts, *(start - lead for start in starts if start - lead > begins)})
        wanted = ((moment, self.largest_row_within(moment, moment + lead)) for moment in moments)
        runs = [next(run) for _, run in groupby(wanted, key=lambda one: one[1]["instances"])]
        until = [*(start for start, _ in runs[1:]), self.ends]
        return [
            ReplicaInterval(start, end, row["instances"], row["decision_id"])
            for (start, row), end in zip(runs, until, strict=True)
        ]

    @property
    def ends(self) -> datetime:
        """When the plan does."""
        return self.rows[-1]["hour_start"] + self._slot

    def of(self, moment: datetime) -> Row | None:
        """The row of the very slot that an instant lies in, if the plan has it."""
        row = self.at(moment)
        return row if row["hour_start"] <= moment < row["hour_start"] + self._slot else None

    def at(self, moment: datetime) -> Row:
        """The row that holds at an instant; the first one before the plan, the last one after it."""
        return next((row for row in reversed(self.rows) if row["hour_start"] <= moment), self.rows[0])

    def largest_row_within(self, first: datetime, last: datetime) -> Row:
        """The row that asks for most between two instants, both included."""
        within = [row for row in self.rows if first < row["hour_start"] <= last]
        return max([self.at(first), *within], key=lambda row: row["instances"])


def build_workloads(settings: RunSettings, rows: Sequence[Row]) -> list[ClusterWorkload]:
    """The workloads of a plan, in the order of its rows; ValueError for more than one region."""
    regions = list(dict.fromkeys(row["region"] for row in rows))
    if len(regions) > 1:
        raise ValueError(
            f"The plan has the regions {', '.join(regions)}; Kubernetes objects are for one cluster. "
            f"Choose its region: --region {regions[0]}."
        )
    by_kind = {
        kind: list(of)
        for kind, of in groupby(rows, key=lambda row: tuple(row[name] for name in WORKLOAD_KIND_COLUMNS))
    }
    return [
        ClusterWorkload(name, own, *instance_limits(settings.grid, own[0]), _boot_s(settings, own[0]))
        for name, own in zip(workload_names(list(by_kind)), by_kind.values(), strict=True)
    ]


def workload_names(kinds: Sequence[tuple[str, str, int, str]]) -> list[str]:
    """What the workloads of kinds (llm, GPU type, GPUs, role) of a region are called, in their order."""
    told = [(llm, gpu) for llm, gpu, _ in dict.fromkeys((llm, gpu, n) for llm, gpu, n, _ in kinds)]
    found = []
    for llm, gpu, gpus, role in kinds:
        parts = [f"{llm}-{gpu}"]
        parts += [f"x{gpus}"] if told.count((llm, gpu)) > 1 else []
        parts += [] if role == "whole" else [role]
        found.append(dns_label("-".join(parts)))
    return found


def dns_label(name: str) -> str:
    """A name as Kubernetes takes it: lower case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def instance_limits(grid: Grid, row: Row) -> tuple[int, int]:
    """The config's minimum and maximum of a kind of an llm in its region."""
    like = [
        pool
        for pool in grid.pools
        if (pool.kind.llm, pool.kind.gpu, pool.kind.gpus, pool.role)
        == tuple(row[name] for name in WORKLOAD_KIND_COLUMNS)
        and pool.region == row["region"]
    ]
    return sum(pool.min_instances for pool in like), sum(pool.max_instances for pool in like)


def _boot_s(settings: RunSettings, row: Row) -> float:
    return boot_cold_s(settings.catalogue, settings.config.replay, row["llm"], row["region"], row["gpu"])
