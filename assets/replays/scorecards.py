"""The scorecard of a day: what the marts say of its replays, kept as a table of the lake."""

from datetime import date

import pyarrow as pa

from assets.lake.settings import Progress, Settings

SHOWN = (  # columns of the scoreboard that fit on a page
    *(
        "policy",
        "iw_fast_attainment_share",
        "iw_normal_attainment_share",
        "niw_attainment_share",
        "ttft_p95_s",
    ),
    *("gpu_hours", "wasted_gpu_hours", "usd", "over_clairvoyant_share"),
)
SCOREBOARD = "select * from scoreboard where trace = $trace and day = $day"


def score_day(settings: Settings, day: date, progress: Progress | None = None) -> pa.Table:
    """Write the scorecard (per policy, llm, region, tier and hour) of every policy that was replayed.

    One policy after the other: exact percentiles hold all their values in memory.
    """
    lake, trace = settings.lake, settings.trace
    files = lake.root.glob(str(lake.path("outcomes", trace=trace, day=day).relative_to(lake.root)))
    policies = sorted(file.parent.name.removeprefix("policy=") for file in files)
    scores = []
    with (progress or Progress()).bar(f"score {day}", len(policies)) as done:
        for policy in policies:
            scores.append(lake.sql("marts/scorecard.sql", trace=trace, day=day, policy=policy))
            done(len(scores))
    table = pa.concat_tables(scores)
    settings.lake.write("scorecard", table, trace=settings.trace, day=day)
    return table


def scoreboard(settings: Settings, day: date) -> pa.Table:
    """One row per policy, in the order of the config; policies that it does not name come last."""
    table = settings.lake.sql(SCOREBOARD, trace=settings.trace, day=day)
    order = [*settings.config.replay.policies, *table["policy"].to_pylist()]
    rank = [order.index(policy) for policy in table["policy"].to_pylist()]
    return table.append_column("rank", pa.array(rank)).sort_by("rank").drop_columns("rank")
