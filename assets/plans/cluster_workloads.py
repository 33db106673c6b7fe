"""Turn the plan of one region into workloads of its cluster: the replicas of each over time.

A pool of an llm is the workload LLM-GPU in the cluster of its region. Its name has the number of GPUs where
the llm runs on several numbers of that GPU, and the role where it prefills or decodes. A plan counts serving
instances. A replica boots before it serves, so scale-out is moved earlier by the boot time and by the delay
of the autoscaler; scale-in is not.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.plans.plan_export import WORKLOAD_KIND_COLUMNS, EarlyBoots
from fleetcast.models.aliases import Row
from fleetcast.models.replay.session.fleet_arrays import boot_cold_s
from fleetcast.models.world.fleet_config import gpu_type
from fleetcast.models.world.plan_grid import Grid

# KEDA polls every 15 s, the HPA every 15 s, cron triggers know whole minutes.
AUTOSCALER_DELAY = timedelta(minutes=1)
_HOUR = timedelta(hours=1)


class ReplicaInterval(NamedTuple):
    """A constant number of replicas between two instants, decided by one row of the plan."""

    start: datetime
    end: datetime
    replicas: int
    decision_id: str


class ClusterWorkload(NamedTuple):
    """The instances of one llm on one GPU type, number of GPUs and role in one cluster."""

    name: str  # a valid Kubernetes name
    rows: Sequence[Row]  # rows of the plan, in order of time
    min_replicas: int  # the config's minimum of instances
    max_replicas: int  # the config's maximum of instances
    boot_s: float  # seconds of a cold start

    @property
    def lead(self) -> timedelta:
        """Return how long before it has to serve a replica is requested from an autoscaler."""
        return timedelta(seconds=self.boot_s) + AUTOSCALER_DELAY

    @property
    def safe_replicas(self) -> int:
        """Return the safe level, the highest count of the rows: held where no plan is known."""
        return max(row["instances"] for row in self.rows)

    @property
    def usd_per_hour(self) -> float:
        """Return the price of one replica; 0 where the plan never runs any."""
        row = next((row for row in self.rows if row["instances"]), None)
        return 0.0 if row is None else row["usd"] / row["instances"] / (self._slot / _HOUR)

    @property
    def _slot(self) -> timedelta:
        starts = [row["hour_start"] for row in self.rows]
        return starts[1] - starts[0] if len(starts) > 1 else timedelta(hours=1)

    def intervals(self, lead: timedelta = timedelta(0)) -> list[ReplicaInterval]:
        """Return the replicas to request over time: at t, the largest count of the plan in [t, t + lead]."""
        begins = self.rows[0]["hour_start"]
        starts = [row["hour_start"] for row in self.rows]
        moments = sorted({begins, *starts, *(start - lead for start in starts if start - lead > begins)})
        wanted = ((moment, self.largest_row_within(moment, moment + lead)) for moment in moments)
        runs = [next(run) for _, run in groupby(wanted, key=lambda pair: pair[1]["instances"])]
        until = [*(start for start, _ in runs[1:]), self.ends]
        return [
            ReplicaInterval(start, end, row["instances"], row["decision_id"])
            for (start, row), end in zip(runs, until, strict=True)
        ]

    def intervals_to_safe_level(self, lead: timedelta) -> list[ReplicaInterval]:
        """Return `intervals`, and the safe level from a lead before the plan's end on."""
        resumes = max(self.ends - lead, self.rows[0]["hour_start"])
        kept = [interval for interval in self.intervals(lead) if interval.start < resumes]
        return [*kept, ReplicaInterval(resumes, self.ends, self.safe_replicas, self.rows[-1]["decision_id"])]

    @property
    def ends(self) -> datetime:
        """Return the end of the plan's last slot."""
        return self.rows[-1]["hour_start"] + self._slot

    def row_in_slot(self, moment: datetime) -> Row | None:
        """Return the row whose slot contains an instant, None where the plan has none."""
        row = self.row_at(moment)
        return row if row["hour_start"] <= moment < row["hour_start"] + self._slot else None

    def row_at(self, moment: datetime) -> Row:
        """Return the row that applies at an instant: the first one before the plan, the last one after it."""
        return next((row for row in reversed(self.rows) if row["hour_start"] <= moment), self.rows[0])

    def largest_row_within(self, first: datetime, last: datetime) -> Row:
        """Return the row with the most instances between two instants, both included."""
        within = [row for row in self.rows if first < row["hour_start"] <= last]
        return max([self.row_at(first), *within], key=lambda row: row["instances"])


def build_workloads(settings: RunSettings, rows: Sequence[Row]) -> list[ClusterWorkload]:
    """Return the workloads of a plan, in the order of its rows; ValueError for more than one region."""
    regions = list(dict.fromkeys(row["region"] for row in rows))
    if len(regions) > 1:
        raise ValueError(
            f"The plan has the regions {', '.join(regions)}; Kubernetes objects are for one cluster. "
            f"Choose its region: --region {regions[0]}."
        )
    by_kind = {
        kind: list(group)
        for kind, group in groupby(rows, key=lambda row: tuple(row[name] for name in WORKLOAD_KIND_COLUMNS))
    }
    return [
        ClusterWorkload(name, group, *instance_limits(settings.grid, group[0]), _boot_s(settings, group[0]))
        for name, group in zip(workload_names(list(by_kind)), by_kind.values(), strict=True)
    ]


def limit_to_config(settings: RunSettings, rows: Sequence[Row]) -> tuple[list[Row], str]:
    """Return a plan's rows within the config's limits, and a line on those that were not; "" for none.

    Such a plan was made before the config was changed.
    """
    limited, changed = list[Row](), dict[tuple[str, int, bool], list[int]]()
    for row in rows:
        instances = row["instances"]
        kept = limit_instances(instances, *instance_limits(settings.grid, row))
        if kept != instances:
            place = f"{row['llm']} in {row['region']}"
            changed.setdefault((place, kept, kept < instances), []).append(instances)
            scaled = {name: row[name] * kept / instances for name in ("usd", "sustained_tokens_per_s")}
            row = {**row, "instances": kept, **scaled}  # what small pools sustain is not known here
        limited.append(row)
    if not changed:
        return limited, ""
    listed = "; ".join(
        f"{place}: {max(counts)}, now at most {kept}"
        if is_above
        else f"{place}: {min(counts)}, now at least {kept}"
        for (place, kept, is_above), counts in changed.items()
    )
    day = rows[0]["day"]
    is_planned_nightly = day in settings.lake.days("plans", settings.trace)
    again = settings.command(f"nightly --date {day}" if is_planned_nightly else "plan ahead")
    return limited, f"limits   the plan was made with another config ({listed}). Plan it again: {again}"


def limit_instances(instances: int, least: int, most: int) -> int:
    """Return a planned count within limits; 0 where the plan runs none, as it may use other kinds."""
    return min(max(instances, least), most) if instances else 0


def early_boots(settings: RunSettings, rows: Sequence[Row]) -> EarlyBoots:
    """Return the GPU-hours and USD of replicas between their request and the hour that needs them."""
    gpu_hours = usd = 0.0
    for _, of_region in groupby(rows, key=lambda row: row["region"]):
        for workload in build_workloads(settings, list(of_region)):
            requested = sum(
                (interval.end - interval.start) / _HOUR * interval.replicas
                for interval in workload.intervals(workload.lead)
            )
            serving = sum(interval.replicas * (interval.end - interval.start) / _HOUR
                          for interval in workload.intervals())  # fmt: skip
            gpu_hours += (requested - serving) * workload.rows[0]["gpus_per_instance"]
            usd += (requested - serving) * workload.usd_per_hour
    return EarlyBoots(gpu_hours, usd)


def workload_names(kinds: Sequence[tuple[str, str, int, str]]) -> list[str]:
    """Return the workload names of kinds (llm, GPU type, GPUs, role) of one region, in their order."""
    pairs = [(llm, gpu) for llm, gpu, _ in dict.fromkeys((llm, gpu, n) for llm, gpu, n, _ in kinds)]
    names = []
    for llm, gpu, gpus, role in kinds:
        parts = [f"{llm}-{gpu}"]
        parts += [f"x{gpus}"] if pairs.count((llm, gpu)) > 1 else []
        parts += [] if role == "whole" else [role]
        names.append(dns_label("-".join(parts)))
    return names


def dns_label(name: str) -> str:
    """Return a name that Kubernetes accepts: lower case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def instance_limits(grid: Grid, row: Row) -> tuple[int, int]:
    """Return the config's minimum and maximum of instances for the kind and region of a plan row."""
    pools = [
        pool
        for pool in grid.pools
        if (pool.kind.llm, pool.deployment.gpu_title, pool.kind.gpus, pool.role)
        == tuple(row[name] for name in WORKLOAD_KIND_COLUMNS)
        and pool.region == row["region"]
    ]
    return sum(pool.min_instances for pool in pools), sum(pool.max_instances for pool in pools)


def _boot_s(settings: RunSettings, row: Row) -> float:
    gpu = gpu_type(row["gpu"])
    return boot_cold_s(settings.catalogue, settings.config.replay, row["llm"], row["region"], gpu)
