"""Read from the plans in the lake how many replicas each workload should have now.

It is the plan's highest count until a replica that is requested now would serve. After the plan's end, it is
that of the same hour a day before. It is the floor once the plan is two days old (since midnight of its day,
or since a rolling plan was made), where there is no plan, or while an alarm reports that the last value was
the better forecast. Files are checked every few seconds and read when they have changed.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby
from threading import Lock
from typing import NamedTuple

from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.settings import RunSettings, midnight
from fleetcast.assets.lake.store import folders_with_rows
from fleetcast.assets.lake.table_queries import PLAN_TABLES
from fleetcast.assets.plans.cluster_workloads import (
    ClusterWorkload,
    build_workloads,
    instance_limits,
    limit_instances,
)
from fleetcast.assets.plans.plan_export import WORKLOAD_KIND_COLUMNS, require_planned_policy
from fleetcast.models.aliases import Row

_DAY = timedelta(days=1)
STALE_AFTER = 2 * _DAY  # a plan of this age is no longer used
FORECAST_ALARM = "forecasts_beat_last_value"
MEASURED_STATE = "measured"  # the state of replicas by a rule on metrics
WorkloadKey = tuple[str, str, str, int, str]  # region, llm, GPU type, GPUs, role


class ReplicaTarget(NamedTuple):
    """The replicas that a workload should have now, and the reason."""

    replicas: int
    state: str  # measured, planned, yesterday or floor
    why: str  # a sentence; "" while the metrics or the plan apply
    decision_id: str  # "" on the floor


class CurrentPlan:
    """The plans of one policy in the lake; `now` returns the time, in UTC."""

    def __init__(self, settings: RunSettings, policy: str, now: Callable[[], datetime]) -> None:
        require_planned_policy(settings, policy, "scaler")
        self.settings, self.policy, self.now = settings, policy, now
        self.trace = settings.trace
        self.workloads: Mapping[WorkloadKey, ClusterWorkload] = {}
        self.distrusted: frozenset[tuple[str, str]] = frozenset()  # (llm, region) with an alarmed forecast
        self._seen: object = None
        self._reading = Lock()

    def refresh(self) -> bool:
        """Read the plans again where their files or the date have changed; return whether they are new.

        Where files change meanwhile, the plans stay as they are until the next call. LakeError, and the plans
        stay too, where the lake has none or cannot be read.
        """
        with self._reading:
            root, seen = self.settings.lake.root, self._marks_of_today()
            if not folders_with_rows(root, PLAN_TABLES):
                # A mount that is away leaves an empty folder: this is no reason to forget the plan.
                raise LakeError(f"{root} has no plan of any day.")
            if seen == self._seen:
                return False
            read = self._read_plans(), self._read_alarm()
            if self._marks_of_today() != seen:
                return False  # A mount that went away while it was read looks like a lake without a plan.
            self.workloads, self.distrusted = read
            self._seen = seen
            return True

    def replica_target(
        self, key: WorkloadKey, floor: int | None, moment: datetime | None = None
    ) -> ReplicaTarget:
        """Return the target of a workload at a moment; ValueError for one that the config does not deploy.

        `floor` is the target where the plan is not trusted; None stands for the config's minimum. `moment`
        is now by default.
        """
        workload = self.workloads.get(key)
        if workload is not None and workload.max_replicas > 0:
            least, most = workload.min_replicas, workload.max_replicas
        else:
            least, most = self._config_limits(key)
        floor = least if floor is None else floor
        if workload is None:
            return ReplicaTarget(floor, "floor", f"there is no plan of {self.policy}", "")
        if (key[1], key[0]) in self.distrusted:
            return ReplicaTarget(
                floor, "floor", f"alarm {FORECAST_ALARM}: the last value was the better forecast", ""
            )
        now = moment or self.now()
        applied = self._row_at(workload, now)
        if applied is None:
            why = f"no plan for now: the newest one ends at {workload.ends:%Y-%m-%d %H:%M}"
            return ReplicaTarget(floor, "floor", why, "")
        state = "planned" if workload.row_in_slot(now) is applied else "yesterday"
        starts = [row["hour_start"] + shift for row in workload.rows for shift in (timedelta(0), _DAY)]
        ahead = sorted({start for start in starts if now < start <= now + workload.lead})
        rows = [applied, *(row for start in ahead if (row := self._row_at(workload, start)))]
        target = max(rows, key=lambda row: row["instances"])
        why = f"no plan has {now:%Y-%m-%d %H:%M}: the same hour a day before" if state == "yesterday" else ""
        planned = target["instances"]
        count = limit_instances(planned, least, most)
        if count != planned:
            limit = "at most" if count < planned else "at least"
            why = f"the plan has {planned}, and the config {limit} {count} now: plan it again"
        return ReplicaTarget(count, state, why, target["decision_id"])

    def _row_at(self, workload: ClusterWorkload, moment: datetime) -> Row | None:
        """Return the row for an instant: the plan's, or that of the same hour a day before; None if stale."""
        for back in (timedelta(0), _DAY):
            row = workload.row_in_slot(moment - back)
            if row is not None and self.now() - (row["made_at"] or midnight(row["day"])) < STALE_AFTER:
                return row
        return None

    def _marks_of_today(self) -> object:
        """Return the date, and the marks of the files of five days around it: they change with a file."""
        today, lake, trace = self.now().date(), self.settings.lake, self.settings.trace
        marks = [
            lake.marks(table, trace=trace, **{"made_day" if table == "rolling_plans" else "day": day})
            for table in (*PLAN_TABLES, "forecasts")
            for day in (today + timedelta(days=n) for n in (-2, -1, 0, 1, 2))
        ]
        return today, marks

    def _read_plans(self) -> dict[WorkloadKey, ClusterWorkload]:
        today = self.now().date()
        rows = self.settings.lake.sql(
            "reads/plan_rows.sql", trace=self.settings.trace, policy=self.policy,
            first=today - 2 * _DAY, last=today + 2 * _DAY,
        ).to_pylist()  # fmt: skip
        return {
            _key(region, workload.rows[0]): workload
            for region, group in groupby(rows, key=lambda row: row["region"])
            for workload in build_workloads(self.settings, list(group))
        }

    def _read_alarm(self) -> frozenset[tuple[str, str]]:
        """Return the alarmed (llm, region) of the newest day with forecasts within the last two days."""
        settings, today = self.settings, self.now().date()
        days = [day for day in settings.lake.days("forecasts", settings.trace) if day <= today]
        if not days or today - days[-1] > STALE_AFTER:
            return frozenset()
        return frozenset(_distrusted_endpoints(settings, days[-1]))

    def _config_limits(self, key: WorkloadKey) -> tuple[int, int]:
        """Return the config's minimum and maximum of a workload; ValueError if it is not deployed."""
        region, llm, gpu, gpus, role = key
        row = {"region": region, "llm": llm, "gpu": gpu, "gpus_per_instance": gpus, "role": role}
        min_replicas, max_replicas = instance_limits(self.settings.grid, row)
        if max_replicas == 0:
            raise ValueError(
                f"The config {self.settings.config.file.name} runs no {role} instances of {llm} on "
                f"{gpus} x {gpu} in {region}. Export the ScaledObjects again, or serve their config."
            )
        return min_replicas, max_replicas


def _distrusted_endpoints(settings: RunSettings, day: date) -> Sequence[tuple[str, str]]:
    """Return (llm, region) pairs whose interactive demand the last value forecast better on a day."""
    alarms = settings.lake.sql(
        f"alarms/{FORECAST_ALARM}.sql", trace=settings.trace, day=day, method=settings.config.forecast.method
    ).to_pylist()
    return [(row["llm"], row["region"]) for row in alarms if row["tier"] == INTERACTIVE]


def _key(region: str, row: Row) -> WorkloadKey:
    llm, gpu, gpus, role = (row[name] for name in WORKLOAD_KIND_COLUMNS)
    return region, llm, gpu, gpus, role
