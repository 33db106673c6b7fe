"""The index of what SQL can read: questions with their query, then tables, marts and queries by subject."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fleetcast.assets.lake.shared_columns import column_meaning
from fleetcast.assets.lake.sql_files import SQL, SqlFile, read_sql

BY_QUESTION = "By question"
QUESTIONS_FILE = SQL / "questions.toml"
SQL_FILE_KINDS = {"tables": "table", "marts": "mart", "macros": "macro", "queries": "query"}
DESCRIBE = re.compile(r"\s*(?:describe|desc)\s+(?:table\s+)?(\w+)\s*;?\s*", re.IGNORECASE)
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
        "tables/witnessed",
        *(
            "marts/advice",
            "queries/shadow",
            "marts/shadow_runs",
            "marts/graded_shadow",
            "queries/graded_shadow",
        ),
        *("marts/graded_days", "marts/graded_decisions"),
        *("tables/advised_days", "macros/is_inside", "marts/graded_advice", "marts/graded_tiers"),
        "marts/advice_reliability",
    ),
    "What requests met": (
        *(
            "tables/outcomes",
            "marts/scorecard",
            "marts/scoreboard",
            "tables/learned_shares",
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


class IndexEntry(NamedTuple):
    """A line of the index: what to type after `fleetcast sql`, and what it has."""

    subject: str
    kind: str  # question, table, mart, macro or query
    query: str  # a name, a file of sql/queries, or a query
    text: str
    words: str  # everything that a search looks at


def read_questions() -> dict[str, str]:
    """Read the questions that marts answer, each with its query."""
    return tomllib.loads(QUESTIONS_FILE.read_text(encoding="utf-8"))


def index_entries() -> Iterator[IndexEntry]:
    """Yield the questions, then every table, mart, macro and query by subject."""
    for question, query in read_questions().items():
        yield IndexEntry(BY_QUESTION, "question", query, question, f"{question} {query}")
    for subject, names in INDEX_SUBJECTS.items():
        for name in names:
            folder, stem = name.split("/")
            file, kind = read_sql(f"{name}.sql"), SQL_FILE_KINDS[folder]
            query = f"sql/{name}.sql" if kind == "query" else stem
            yield IndexEntry(subject, kind, query, describe_file(file), f"{query} {_searched_text(file)}")


def search_index(word: str) -> list[IndexEntry]:
    """Return the entries with a word that begins so in name, text or columns; ValueError if there is none."""
    begins_word = re.compile(rf"(?<![^\W_]){re.escape(word)}", re.IGNORECASE)
    if found := [entry for entry in index_entries() if begins_word.search(entry.words)]:
        return found
    raise ValueError(
        f"No word of the index begins with {word!r}. Try fewer letters, or see all: fleetcast sql --list."
    )


def describe_file(file: SqlFile) -> str:
    """Return the first sentence of a file without its name."""
    return file.sentence.removeprefix(f"{file.name.removesuffix('.sql')}: ")


def described_view(query: str) -> SqlFile | None:
    """Return the header of the table or mart of a query `describe NAME`; None for other queries and names."""
    if found := DESCRIBE.fullmatch(query):
        for folder in ("tables", "marts"):
            if (path := SQL / folder / f"{found[1].lower()}.sql").is_file():
                return read_sql(path)
    return None


def column_meanings(file: SqlFile, columns: list[str]) -> list[str | None]:
    """Return the meaning of each column by the header; None where it has none."""
    return [column_meaning(column, file.columns) for column in columns]


def _searched_text(file: SqlFile) -> str:
    columns = " ".join(f"{name} {meaning}" for name, meaning in file.columns.items())
    return f"{file.sentence} {columns}"
