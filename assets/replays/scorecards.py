"""Write the scorecard and the scoreboard of a day, and read the scoreboard."""

from collections.abc import Sequence
from datetime import date, timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.learned_shares import write_learned_shares
from fleetcast.assets.lake.scoreboards import write_scoreboards
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings, midnight
from fleetcast.assets.lake.sql_files import read_sql
from fleetcast.assets.pages.tier_columns import add_tier_columns, attainment_column, scoreboard_tiers

SCOREBOARD_PAGE_COLUMNS = (  # scoreboard columns that fit on a page, after the attainment of each tier
    *("ttft_p95_s", "e2e_p95_s", "gpu_hours", "instance_hours", "wasted_gpu_hours", "usd"),
    "over_clairvoyant_share",
)
SCORED_AT_ONCE = 10_000_000  # largest number of outcomes of a policy that are scored in one query
SCOREBOARD_SQL = "select * from scoreboard where trace = $trace and day = $day"

# One tier at a time, so that DuckDB computes percentiles of that tier's requests only.
TIER_SCOREBOARD_SQL = (
    "select * from scoreboard_by_tier "
    "where trace = $trace and day = $day and tier = $tier and policy = coalesce($policy, policy)"
)


def score_day(settings: RunSettings, day: date, progress: Progress | None = None) -> pa.Table:
    """Write the scorecard (per policy, llm, region, tier and hour) and the scoreboard of what was replayed.

    Policies are scored one after the other, and hour by hour where they have many requests, because exact
    percentiles need all their values in memory. Days that an earlier release scored get their scoreboard too.
    """
    lake, trace = settings.lake, settings.trace
    files = lake.files("outcomes", trace=trace, day=day)
    policies = sorted({file.parent.name.removeprefix("policy=") for file in files})
    are_many = lake.count("outcomes", trace=trace, day=day) > SCORED_AT_ONCE * len(policies)
    ends = [midnight(day) + timedelta(hours=hour) for hour in range(HOURS_OF_DAY + 1)]
    hours = list(pairwise(ends)) if are_many else [(None, None)]
    parts = [{"policy": policy, "begin": begin, "end": end} for policy in policies for begin, end in hours]
    scores = []
    for part in (progress or Progress()).each(f"score {day}", parts):
        scores.append(lake.sql("marts/scorecard.sql", trace=trace, day=day, **part))
    table = pa.concat_tables(scores)
    grain = read_sql("marts/scorecard.sql").listed("grain")
    table = table.sort_by([(name, "ascending") for name in grain])  # equal outcomes give equal bytes
    lake.write("scorecard", table, trace=trace, day=day)
    write_scoreboards(lake, [(trace, day)])
    write_learned_shares(settings, day)
    return table


def read_scoreboard(settings: RunSettings, day: date) -> pa.Table:
    """Return one row per policy, in the order of the config; policies outside it come last.

    The table's columns are followed by one for each tier, TIER_attainment_share.
    """
    board = settings.lake.sql(SCOREBOARD_SQL, trace=settings.trace, day=day)
    return _ranked(settings, add_tier_columns(board))


def scoreboard_page_columns(board: pa.Table) -> list[str]:
    """Return the columns of a scoreboard that fit on a page."""
    return ["policy", *map(attainment_column, scoreboard_tiers(board)), *SCOREBOARD_PAGE_COLUMNS]


def attainment_by_target(settings: RunSettings, day: date, policy: str | None = None) -> pa.Table:
    """Return SLO attainment by target: a row per policy and tier that has a target per output token."""
    tiers, known = settings.catalogue.tiers, list(settings.catalogue.tiers)
    shown = [name for name, tier in tiers.items() if tier.tpot_slo_s is not None]
    key = {"trace": settings.trace, "day": day, "policy": policy}
    rows = pa.concat_tables(
        settings.lake.sql(TIER_SCOREBOARD_SQL, tier=tier, **key) for tier in shown or [""]
    )
    return _ranked(settings, rows, [known.index(tier) for tier in rows["tier"].to_pylist()])


def _ranked(settings: RunSettings, table: pa.Table, then: Sequence[int] = ()) -> pa.Table:
    """Return the rows in the order of the config's policies, then by `then`, a number for each row."""
    order = [*settings.config.replay.policies, *table["policy"].to_pylist()]
    rank = [order.index(policy) for policy in table["policy"].to_pylist()]
    keys = np.lexsort((then or rank, rank))
    return table.take(pa.array(keys))
