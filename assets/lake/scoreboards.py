"""The scoreboard of a scored day, written once: a query of many days need not read their requests again."""

from collections.abc import Iterable
from datetime import date

from fleetcast.assets.lake.lake_views import days_without_scoreboard
from fleetcast.assets.lake.sql_files import read_sql
from fleetcast.assets.lake.warehouse import Lake


def write_scoreboards(lake: Lake, scored: Iterable[tuple[str, date]] = ()) -> None:
    """Write the rows of marts/scoreboard.sql of these traces and days, and of scored days without them."""
    mart = read_sql("marts/scoreboard.sql").text
    query = f"select * exclude (trace, day) from (\n{mart}) where trace = $trace and day = $day order by all"
    for trace, day in sorted({*scored, *days_without_scoreboard(lake)}):
        lake.write("scoreboard", lake.sql(query, trace=trace, day=day), trace=trace, day=day)
