"""What each policy is given on a day: its targets, and the fleet that all of them start from."""

from datetime import date

import numpy as np
import pandas as pd

from assets.demand.demand import INTERACTIVE, demand_matrix
from assets.lake.settings import HOURS, Settings
from models.replay.fleet import make_fleet, make_rules, with_failures
from models.replay.policies import POLICIES
from models.replay.run import Drive
from models.replay.state import Fleet, Floats, Rules
from models.world.reading import require_known

HOUR_S = 3600.0
DAY_S = HOURS * HOUR_S
RECENT_MINUTES = 3  # the adjustment interval of Dynamo's planner (docs.nvidia.com/dynamo, planner guide)


def setting(settings: Settings, policy: str) -> tuple[Fleet, Rules]:
    """The fleet and the rules under which a policy is replayed."""
    config, rule = settings.config, POLICIES[policy]
    fleet = make_fleet(settings.catalogue, config.fleet, config.replay, config.trace.seed, rule.pooling)
    rules = make_rules(settings.catalogue, config.replay, rule.scaling)
    rate = config.replay.failures_per_instance_day
    return fleet, with_failures(rules, fleet, rate, DAY_S, config.trace.seed)


def day_drives(settings: Settings, day: date) -> dict[str, Drive]:
    """What every policy is given.

    All start from hour 0 of the paper's forecast plan, so that none is given a better fleet.
    """
    rows = plan_rows(settings, day)
    start = hourly_table(settings, rows, "lt_i", "instances")[0]
    drives = {}
    for policy, rule in POLICIES.items():
        if rule.plan is None:
            drives[policy] = Drive(start=start, hour_s=HOUR_S)
        elif rule.plan == "recent":
            targets = recent_targets(settings, day, rows, start)
            drives[policy] = Drive(targets, None, start, HOUR_S, rows_per_hour=60 // RECENT_MINUTES)
        else:
            targets = hourly_table(settings, rows, policy, "instances")
            forecast = hourly_table(settings, rows, policy, "demand_tokens_per_s")
            drives[policy] = Drive(targets, forecast, start, HOUR_S)
    return drives


def plan_rows(settings: Settings, day: date) -> pd.DataFrame:
    """The plans of the day as they stand in the lake; ConfigError for a name that the catalogue lacks."""
    rows = settings.lake.sql(
        "select *, hour(hour_start) as hour from plans where trace = $trace and day = $day",
        trace=settings.trace,
        day=day,
    ).to_pandas()
    for column, known in (("llm", settings.catalogue.llms), ("region", settings.catalogue.regions)):
        for name in rows[column].unique():
            require_known(name, list(known), column, f"the plan of {day}")
    return rows


def hourly_table(settings: Settings, rows: pd.DataFrame, policy: str, column: str) -> Floats:
    """A column of a policy's plan, shape (hours, llms, regions); instances are summed over GPU types."""
    own = rows[rows["policy"] == policy]
    llms, regions = list(settings.catalogue.llms), list(settings.catalogue.regions)
    together = own.groupby(["hour", "llm", "region"])[column].agg("sum" if column == "instances" else "first")
    index = pd.MultiIndex.from_product([range(HOURS), llms, regions])
    return together.reindex(index, fill_value=0).to_numpy(float).reshape(HOURS, len(llms), len(regions))


def recent_targets(settings: Settings, day: date, rows: pd.DataFrame, start: Floats) -> Floats:
    """Instances for the interactive load of the RECENT_MINUTES before, shape (periods, llms, regions)."""
    minutes, fleet = RECENT_MINUTES, settings.config.fleet
    found = demand_matrix(settings.lake, settings.trace, day, day, minutes, settings.catalogue)
    sustained = hourly_table(settings, rows, "clairvoyant", "capacity_tokens_per_s")[0]
    load = np.nan_to_num(found.of_tier(INTERACTIVE))  # in a silence of the day nothing is replayed
    needed = np.ceil(np.moveaxis(load, -1, 0)[:-1] / sustained)
    return np.concatenate([start[None], np.clip(needed, fleet.min_instances, fleet.max_instances)])
