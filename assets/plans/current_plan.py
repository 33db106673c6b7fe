"""What of the plans in the lake holds now, for whoever asks while a cluster runs.

Of each workload the row of its plan that holds; after the plan's end, for a day, that of the same hour a day
before; and the floor once the plan is two days old, once there is none, or once the alarm says that the last
value has been the better forecast. Files are looked at every few seconds and read when they have changed.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import groupby
from threading import Lock
from typing import NamedTuple

from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.lake.settings import RunSettings, midnight
from fleetcast.assets.plans.cluster_workloads import ClusterWorkload, build_workloads, instance_limits
from fleetcast.assets.plans.plan_export import WORKLOAD_KIND_COLUMNS, exportable_policies
from fleetcast.models.aliases import Row
from fleetcast.models.world.toml_dataclasses import require_known

_DAY = timedelta(days=1)
STALE_AFTER = 2 * _DAY  # how old a plan may be
FORECAST_ALARM = "forecasts_beat_last_value"
ROLLING_TABLE = "rolling_plans"
PLAN_TABLES = ("plans", "closed_plans", "day_ahead_plans", ROLLING_TABLE)
WorkloadKey = tuple[str, str, str, int, str]  # region, llm, GPU type, GPUs, role


class ReplicaTarget(NamedTuple):
    """What a workload should hold now."""

    replicas: int
    state: str  # planned, yesterday or floor
    why: str  # in words, "" while the plan holds
    decision_id: str  # "" on the floor


class CurrentPlan:
    """The plans of one policy as they stand in the lake; `now` tells the time, in UTC."""

    def __init__(self, settings: RunSettings, policy: str, now: Callable[[], datetime]) -> None:
        require_known(policy, exportable_policies(settings), "policy with a plan", "scaler")
        self.settings, self.policy, self.now = settings, policy, now
        self.workloads: Mapping[WorkloadKey, ClusterWorkload] = {}
        self.distrusted: frozenset[tuple[str, str]] = frozenset()  # llm and region whose forecast is
        self._seen: object = None
        self._reading = Lock()

    def refresh(self) -> bool:
        """Read what has changed in the lake since the last look, or with the day; whether anything had."""
        with self._reading:
            files = [marks for table in (*PLAN_TABLES, "forecasts") for marks in self._files(table)]
            seen = self.now().date(), files
            if seen == self._seen:
                return False
            self.workloads, self.distrusted = self._read_plans(), self._read_alarm()
            self._seen = seen
            return True

    def held(self, key: WorkloadKey, floor: int | None) -> ReplicaTarget:
        """What a workload should hold now; ValueError for one that the config does not deploy.

        `floor`: held where the plan is not trusted, else the config's minimum.
        """
        own = self.workloads.get(key)
        least = own.least if own else self._least(key)
        least = least if floor is None else floor
        if own is None:
            return ReplicaTarget(least, "floor", f"there is no plan of {self.policy}", "")
        if (key[1], key[0]) in self.distrusted:
            return ReplicaTarget(
                least, "floor", f"alarm {FORECAST_ALARM}: the last value was the better forecast", ""
            )
        now = self.now()
        for back, state in ((timedelta(0), "planned"), (_DAY, "yesterday")):
            row = own.of(now - back)
            if row is not None and now - (row["made_at"] or midnight(row["day"])) < STALE_AFTER:
                until = now - back + timedelta(seconds=own.boot_s)
                wanted = own.largest_row_within(now - back, until)
                ended = f"{own.ends:%Y-%m-%d %H:%M}"
                why = f"the plan ended at {ended}: the same hour a day before" if back else ""
                return ReplicaTarget(wanted["instances"], state, why, wanted["decision_id"])
        return ReplicaTarget(
            least, "floor", f"no plan for now: the newest one ends at {own.ends:%Y-%m-%d %H:%M}", ""
        )

    def _files(self, table: str) -> list[dict[str, str]]:
        """Of the days that matter now, each with what changes when it is written again."""
        today = self.now().date()
        days = [today + timedelta(days=n) for n in (-2, -1, 0, 1, 2)]
        lake, trace = self.settings.lake, self.settings.trace
        if table == ROLLING_TABLE:
            return [lake.marks(table, trace=trace, made_day=day) for day in days]
        return [lake.marks(table, trace=trace, day=day) for day in days]

    def _read_plans(self) -> dict[WorkloadKey, ClusterWorkload]:
        today = self.now().date()
        rows = self.settings.lake.sql(
            "select * from all_plans where trace = $trace and policy = $policy "
            "and day between $first and $last "
            "order by region, llm, gpu, gpus_per_instance, role, hour_start",
            trace=self.settings.trace, policy=self.policy,
            first=today - 2 * _DAY, last=today + 2 * _DAY,
        ).to_pylist()  # fmt: skip
        found = {}
        for region, own in groupby(rows, key=lambda row: row["region"]):
            for one in build_workloads(self.settings, list(own)):
                found[_key(region, one.rows[0])] = one
        return found

    def _read_alarm(self) -> frozenset[tuple[str, str]]:
        """Of the newest day with forecasts within the last two."""
        settings, today = self.settings, self.now().date()
        days = [day for day in settings.lake.days("forecasts", settings.trace) if day <= today]
        if not days or today - days[-1] > STALE_AFTER:
            return frozenset()
        return frozenset(_distrusted_endpoints(settings, days[-1]))

    def _least(self, key: WorkloadKey) -> int:
        """The config's minimum of a workload that has no plan."""
        region, llm, gpu, gpus, role = key
        row = {"region": region, "llm": llm, "gpu": gpu, "gpus_per_instance": gpus, "role": role}
        least, most = instance_limits(self.settings.grid, row)
        if most == 0:
            raise ValueError(
                f"The config {self.settings.config.file.name} runs no {role} instances of {llm} on "
                f"{gpus} x {gpu} in {region}. Export the ScaledObjects again, or serve their config."
            )
        return least


def _distrusted_endpoints(settings: RunSettings, day: date) -> Sequence[tuple[str, str]]:
    """The llms and regions whose interactive demand the last value foresaw better on a day."""
    broken = settings.lake.sql(
        f"alarms/{FORECAST_ALARM}.sql", trace=settings.trace, day=day, method=settings.config.forecast.method
    ).to_pylist()
    return [(row["llm"], row["region"]) for row in broken if row["tier"] == INTERACTIVE]


def _key(region: str, row: Row) -> WorkloadKey:
    llm, gpu, gpus, role = (row[name] for name in WORKLOAD_KIND_COLUMNS)
    return region, llm, gpu, gpus, role
