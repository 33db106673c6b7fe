"""What a forecast is worth: each method drives the same plan and the same replay.

How good a forecast looks says little about what it costs: an hour forecast too low misses SLOs, one too high
wastes GPUs. So every method plans the day by the corrected programme and is replayed, several times: the less
of an instance's capacity the plan counts on, the more it costs and the less it misses. The mart
decision_leaderboard reads from these curves what each method costs where all attain the same.
"""

from collections.abc import Iterator
from datetime import date

import numpy as np
import pyarrow as pa

from assets.drives import hourly_table, plan_rows
from assets.lookups import require_day
from assets.plan_inputs import Load, day_loads, forecast_windows, hour_problems, problem_template
from assets.plans import checked_solve, open_loop, sustained_tokens_per_s
from assets.settings import Progress, Settings
from assets.trials import Trial, score

TRUTH = "truth"  # the clairvoyant forecast: what came
CAPACITY_SHARES = (0.85, 1.0, 1.1, 1.25, 1.5)  # of what an instance sustains, that the plans count on


def decide(settings: Settings, day: date, progress: Progress) -> pa.Table:
    """Plan and replay a day that has been planned by every forecast method, and write the curves."""
    for table in ("forecasts", "plans"):
        require_day(settings.lake, table, settings.trace, day)
    methods = (*settings.config.forecast.methods, TRUTH)
    count = len(methods) * len(CAPACITY_SHARES)
    board = score(settings, day, trials(settings, day, methods, progress), count, progress)
    method, share = zip(*(name.rsplit(" ", 1) for name in board.index), strict=True)
    slo = next(iter(settings.catalogue.tiers.values()))
    told = ("usd", "boot_usd", "gpu_hours", "iw_fast_attainment_share", "missed_share")
    table = pa.table(
        {
            "method": method,
            "capacity_share": [float(text) for text in share],
            **{name: board[name].to_numpy(float) for name in told},
            "matched_share": np.full(len(board), slo.attainment_target_share),
        }
    )
    settings.lake.write("decisions", table, trace=settings.trace, day=day)
    return table


def leaderboard(settings: Settings, day: date) -> pa.Table:
    """What each method costs where all attain the same, the cheapest first."""
    return settings.lake.sql("queries/which_forecast_pays.sql", trace=settings.trace, day=day)


def trials(settings: Settings, day: date, methods: tuple[str, ...], progress: Progress) -> Iterator[Trial]:
    """The day's plan by each method on each share of capacity, all from the start of the other policies."""
    loads, theta = day_loads(settings, day), np.array(sustained_tokens_per_s(settings, day, progress))
    start = hourly_table(settings, plan_rows(settings, day), "lt_i", "instances")[0].astype(np.int64)
    theta /= settings.config.plan.corrected_capacity_share  # which the template counts on
    for method in methods:
        load = loads["truth"]
        if method != TRUTH:
            load = Load(forecast_windows(settings, day, method)[1], loads["corrected"].buffer)
        for share in CAPACITY_SHARES:
            template = problem_template(settings, (theta * share).tolist(), "corrected")
            at_start = start[:, :, None] * template.runs[:, None, :]
            spot = np.maximum(template.instances_now - at_start, 0)
            solve = checked_solve(settings, "corrected")
            hours = open_loop(hour_problems(template, load), at_start, spot, solve)
            yield Trial(f"{method} {share}", settings, hours, start)
