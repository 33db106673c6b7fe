"""Write sql/README.md, an index of the SQL files by subject: python -m fleetcast.assets.lake.sql_docs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.assets.lake.table_queries import escape_quotes

SQL_INDEX = SQL / "README.md"
INTRODUCTION = """# Tables, marts and queries

Written from the first lines of these files by `python -m fleetcast.assets.lake.sql_docs`; change the files.
Instants are UTC. The published `data/lake/warehouse.duckdb` carries the same texts as comments on its views
and columns.

## How to ask

```
.venv/bin/fleetcast sql "from scoreboard"                                 # any table or mart
.venv/bin/fleetcast sql "from demand_by(15) where llm = 'llama3.1-70b' limit 5"
.venv/bin/fleetcast sql sql/queries/worst_hours.sql > worst_hours.csv     # a shipped query; CSV in a pipe
.venv/bin/fleetcast sql sql/queries/plan_changes.sql --param policy=lt_ua
```

In a query `$trace` and `$day` stand for the config's trace and `--date`, any other `$name` for its `--param`.
From Python, also during a nightly run:

```python
import duckdb

lake = duckdb.connect("data/lake/warehouse.duckdb", read_only=True)
lake.sql("select trace, day, policy, usd, attainment_by_tier['iw_fast'] from scoreboard order by all").show()
```

[contract.yaml](contract.yaml) is the marts' data contract (Open Data Contract Standard 3.1), written by
`python -m fleetcast.assets.lake.contract`. Keep the one that you rely on, and let your CI run
`python -m fleetcast.assets.lake.contract FILE`: it names every column that is gone or means something else.
`fleetcast explore FOLDER` writes a Rill project with a dashboard for each mart. `tests/test_contract.py`
checks each file against the rules of Rill's parser, and runs each model and measure in DuckDB. Rill itself
was not run.

Where to begin:

- [policies_over_days](queries/policies_over_days.sql): what did each policy spend and miss?
- [worst_hours](queries/worst_hours.sql), [why_late](queries/why_late.sql): when, where, why late?
- [plan_changes](queries/plan_changes.sql): what does a plan change, and why?
- [regret](marts/regret.sql): what was spent above the least that any fleet could, and on what?

## What there is, by subject

Tables are Parquet files of the lake, marts are views over them, queries answer a question. The header of each
file has its grain, its units and the meaning of every column. `reads/` has the queries of the program itself.
"""
INDEX_SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "What landed, and how good it is": (
        *("tables/ingests", "tables/quarantine", "marts/quality", "tables/metric_findings", "marts/silences"),
        *("tables/tiers", "tables/tier_verdicts", "tables/answers", "tables/engine_histograms"),
        "marts/source_latency",
    ),
    "What arrived": (
        *(
            "tables/requests",
            "marts/demand",
            "macros/demand_by",
            "marts/load_by_hour",
            "marts/load_by_weekday",
        ),
        *("queries/busiest_hours", "queries/heaviest_requests", "marts/growth", "queries/growth_by_week"),
        *("marts/top_apps", "queries/tokens_by_app", "queries/who_drove_the_peak", "marts/prefix_reuse"),
    ),
    "What the traffic is like": (
        *("tables/characterisation", "tables/arrival_windows", "queries/poisson_or_not", "tables/episodes"),
        *(
            "queries/largest_bursts",
            "queries/level_changes",
            "marts/gap_variation",
            "marts/minute_percentiles",
        ),
        *("marts/streams", "queries/clumpiest_clients", "marts/concentration", "queries/weekend_by_region"),
        *("marts/token_cdf", "marts/token_histogram", "queries/how_foreseeable"),
    ),
    "Forecasts": (
        *("tables/forecasts", "tables/day_ahead_forecasts", "tables/backtests", "tables/backtest_intervals"),
        *("marts/forecast_leaderboard", "queries/forecast_leaderboard", "marts/forecast_losses"),
        *(
            "macros/forecast_losses",
            "marts/forecast_errors",
            "queries/forecast_errors",
            "marts/forecast_by_llm",
        ),
        *("marts/forecast_coverage", "queries/day_ahead_errors", "queries/expected_traffic"),
    ),
    "Plans": (
        *("tables/plans", "tables/plan_windows", "tables/plan_bounds", "tables/day_ahead_plans"),
        *("tables/rolling_plans", "tables/closed_plans", "marts/all_plans", "queries/plan_by_hour"),
        *("queries/plan_changes", "queries/short_plans", "macros/decision_id", "tables/ran_fleets"),
        *(
            "marts/advice",
            "queries/shadow",
            "marts/shadow_runs",
            "marts/graded_shadow",
            "queries/graded_shadow",
        ),
        *("marts/graded_days", "marts/graded_decisions"),
        *("tables/advised_days", "macros/is_inside", "marts/graded_advice", "marts/advice_reliability"),
    ),
    "What requests met": (
        *(
            "tables/outcomes",
            "marts/scorecard",
            "marts/scoreboard",
            "marts/scoreboard_by_tier",
            "marts/tier_attainment",
            "marts/tier_places",
            "macros/slo",
        ),
        *(
            "macros/may_wait",
            "macros/percentiles_of_day",
            "queries/policies_over_days",
            "queries/worst_hours",
        ),
        *(
            "queries/why_late",
            "marts/lateness",
            "marts/ttft_histogram",
            "marts/tpot_histogram",
            "queries/latency_by_region",
        ),
        *("queries/peak_hour_latency", "queries/served_elsewhere", "queries/room_at_night"),
        *("marts/scoreboard_intervals", "marts/scoreboard_differences", "marts/error_draws"),
    ),
    "What the fleet did and cost": (
        *(
            "tables/fleet_hours",
            "marts/fleet_by_hour",
            "marts/left_over",
            "marts/regret",
            "marts/unit_cost",
            "queries/cost_by_llm",
        ),
        *("marts/tokens_per_usd", "marts/energy", "queries/energy_and_usd", "queries/peak_hour_instances"),
        *("queries/uneven_instances", "queries/timeline"),
    ),
    "Stages of a request, and moves": (
        *("tables/legs", "marts/legs_by_hour", "queries/request_legs", "queries/links_busy"),
        *("queries/apart_or_together", "queries/prefix_caching", "queries/who_was_moved"),
        *("queries/what_moves_cost", "tables/level_trials", "marts/level_value", "marts/level_isolation"),
        *("queries/how_many_levels", "queries/how_much_headroom"),
    ),
    "Which llm answers": (
        *("tables/quality_plans", "tables/quality_pools", "marts/quality_board", "marts/quality_front"),
        *("queries/cheapest_for_quality", "queries/what_the_judge_is_worth", "queries/who_answers"),
    ),
    "Which GPUs to rent": (
        *("tables/gpu_prices", "tables/gpu_fleets", "marts/phase_prices", "queries/which_gpus"),
        *("tables/commitments", "tables/lost_pools", "marts/buying_list", "queries/what_to_buy"),
    ),
    "Experiments": (
        *("tables/trials", "marts/whatifs", "marts/decisions", "marts/decision_leaderboard"),
        *("queries/which_forecast_pays", "queries/what_the_forecast_is_worth", "marts/studies"),
        *("tables/paper_values", "queries/against_the_paper", "marts/planner_trials", "marts/planner_board"),
        *("marts/unseen_board", "marts/unseen_days", "marts/foresight"),
        "marts/idea_worth",
    ),
}
SQL_FILE_KINDS = {"tables": "table", "marts": "mart", "macros": "macro", "queries": "query"}


def render_sql_index() -> str:
    """Return the page as Markdown: a line for each table, mart, macro and query, then the checks."""
    parts = [INTRODUCTION]
    for subject, names in INDEX_SUBJECTS.items():
        parts.append(_list(subject, [(name, SQL_FILE_KINDS[name.split("/")[0]]) for name in names]))
    checks = [
        f"{kind}s/{path.stem}"
        for kind in ("check", "alarm")
        for path in sorted((SQL / f"{kind}s").glob("*.sql"))
    ]
    title = "Checks, which no row may break, and alarms, for which nothing stops"
    parts.append(_list(title, [(name, name.split("/")[0].removesuffix("s")) for name in checks]))
    return "\n".join(parts)


def write_sql_index(path: Path = SQL_INDEX) -> None:
    """Write the page to a file."""
    path.write_text(render_sql_index(), encoding="utf-8")


def comment_statements(columns: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield DuckDB statements that write the headers' texts as comments on views and columns.

    Parameters
    ----------
    columns : Mapping[str, Sequence[str]]
        The columns of each existing view.
    """
    for path in (*SQL.glob("tables/*.sql"), *SQL.glob("marts/*.sql")):
        file, view = read_sql(path), path.stem
        if view in columns:
            yield f"comment on view {view} is '{escape_quotes(file.sentence)}'"
        for column, meaning in file.columns.items():
            if column in columns.get(view, ()):
                yield f"comment on column {view}.{column} is '{escape_quotes(meaning)}'"


def _list(title: str, files: Sequence[tuple[str, str]]) -> str:
    """Return a Markdown table of files with the first sentence of each."""
    rows = [f"### {title}", "", "| name | kind | what it has |", "| --- | --- | --- |"]
    for name, kind in files:
        file, stem = read_sql(f"{name}.sql"), name.split("/")[1]
        rows.append(f"| [{stem}]({name}.sql) | {kind} | {_cell(file.sentence.removeprefix(f'{stem}: '))} |")
    return "\n".join([*rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    write_sql_index()
