"""What a forecast is worth: each method drives the same plan and the same replay.

How good a forecast looks says little about what it costs: an hour forecast too low misses SLOs, one too high
wastes GPUs. So every method plans the day by the corrected programme and is replayed, several times: the more
of an instance's capacity the plan counts on, the less it costs and the more it misses. How much makes the day
attain exactly the SLO's target is searched; the mart decision_leaderboard compares the methods there.
"""

from collections.abc import Callable, Mapping
from datetime import date

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.lookups import require_day
from fleetcast.assets.lake.settings import Progress, Settings
from fleetcast.assets.plans.inputs import Load, day_loads, forecast_windows
from fleetcast.assets.plans.plans import checked_solve, open_loop, sustained_tokens_per_s
from fleetcast.assets.plans.problems import hour_problems, problem_template
from fleetcast.assets.replays.drives import plan_rows
from fleetcast.assets.replays.workloads import read_workload
from fleetcast.assets.studies.experiment import ALL, TUNED, Search, Trial, Variant, play_all, write
from fleetcast.assets.studies.planned_trials import FOLLOWS, trial_of_plan
from fleetcast.models.plan.crossing import Tried

LEADERBOARD = "queries/which_forecast_pays.sql"
TRUTH = "truth"  # the clairvoyant forecast: what came


def decide(settings: Settings, day: date, progress: Progress) -> pa.Table:
    """Plan and replay a day that has been planned by every forecast method, and write the curves.

    Raises
    ------
    LakeError
        The day has no forecasts or no plans.
    ValueError
        The day has no interactive request, so there is no SLO to attain.
    """
    for table in ("forecasts", "plans"):
        require_day(settings.lake, table, settings.trace, day)
    tier = compared_tier(settings, day)
    target = settings.catalogue.tiers[tier].attainment_target_share
    trial = planner(settings, day, tier, progress)
    workload, tables = read_workload(settings, day), list[pa.Table]()

    def play(asked: Mapping[str, float]) -> list[Tried]:
        trials = (trial(method, share) for method, share in asked.items())
        found = list(play_all(trials, len(asked), workload, "plan and replay", progress))
        tables.extend(found)
        return [point(rows, share, tier) for rows, share in zip(found, asked.values(), strict=True)]

    search = Search((*settings.config.forecast.methods, TRUTH), target)
    search.run(list(search.tried), play)
    write(settings, "decide", day, pa.concat_tables(tables))
    query = "select * from decisions where trace = $trace and day = $day"
    return settings.lake.sql(query, trace=settings.trace, day=day)


def point(rows: pa.Table, share: float, tier: str) -> Tried:
    """What a trial says of its knob: GPU-hours, and the attainment of the tier."""
    told = {(row["metric"], row["tier"]): row["value"] for row in rows.to_pylist() if row["llm"] == ALL}
    return Tried(share, told["gpu_hours", ALL], told["attainment_share", tier])


def compared_tier(settings: Settings, day: date) -> str:
    """The day's tier with the strictest SLO, whose attainment all methods must share."""
    query = "select distinct tier from demand where trace = $trace and day = $day"
    there = settings.lake.sql(query, trace=settings.trace, day=day)["tier"].to_pylist()
    tier = settings.catalogue.strictest_tier(there)
    if tier is None:
        raise ValueError(
            f"{settings.trace} has no interactive request on {day}: no SLO to compare forecasts by."
        )
    return tier


def leaderboard(settings: Settings, day: date) -> pa.Table:
    """What each method costs where all attain the same, the cheapest first."""
    return settings.lake.sql(LEADERBOARD, trace=settings.trace, day=day)


def planner(settings: Settings, day: date, tier: str, progress: Progress) -> Callable[[str, float], Trial]:
    """The day's plan by a method that counts on a share of capacity, from the start of the other policies."""
    loads, theta = day_loads(settings, day), np.array(sustained_tokens_per_s(settings, day, progress))
    rows = plan_rows(settings, day)
    start = settings.grid.hourly_cells(rows[rows["policy"] == "lt_i"], "instances")[0].astype(np.int64)
    theta /= settings.config.plan.corrected_capacity_share  # which the template counts on

    def trial(method: str, share: float) -> Trial:
        load = loads["truth"]
        if method != TRUTH:
            load = Load(forecast_windows(settings, day, method)[1], loads["corrected"].buffer)
        template = problem_template(settings.grid, settings.config, (theta * share).tolist(), "corrected")
        spot = np.maximum(template.instances_now - start, 0)
        hours = open_loop(hour_problems(template, load), start, spot, checked_solve(settings, "corrected"))
        variant = Variant(
            method, settings, day, FOLLOWS, {"capacity_share": share}, {"tier": tier}, purpose=TUNED
        )
        made = trial_of_plan(variant, hours, settings.grid.by_pool(start))
        target = settings.catalogue.tiers[tier].attainment_target_share
        return made._replace(figures={**made.figures, "matched_share": target})

    return trial
