"""Print the tables of a nightly run: scoreboard, other targets, forecast leaderboard, short plans."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from fleetcast.assets.pages.tier_columns import attainment_column, scoreboard_tiers, strictest_scored_tier
from fleetcast.pipelines.terminal import ERR
from fleetcast.pipelines.terminal_tables import OUT, format_figure, format_percent, show_board


def show_scoreboard(board: pa.Table, trace: str, day: date) -> None:
    """Print the cost and SLO attainment of each policy, and the quality of the answers where it is known.

    `board`: rows of the mart scoreboard.
    """
    policies = board.to_pylist()
    first = strictest_scored_tier(policies)
    others = [tier for tier in scoreboard_tiers(board) if tier != first]
    has_quality = any(row["quality"] is not None for row in policies)
    title = f"{trace}, {day}   (attainment, and GPU-hours over clairvoyant, in %; TTFT in s)"
    heads = ("\n\npolicy", f"SLO\nattained\n{first}", "\nworst\nllm", *(f"\n\n{tier}" for tier in others),
             f"TTFT\np95\n{first}", "\nGPU-\nhours", "backlog\nGPU-\nhours", "\n\nUSD",
             "over\nclair-\nvoyant", *(["\n\nquality"] if has_quality else []))  # fmt: skip
    shares = ("attainment_share", "worst_llm_attainment_share", *map(attainment_column, others))
    rows = [
        (
            row["policy"],
            *(format_percent(row[name], ".1f") for name in shares),
            format_figure(row["ttft_p95_s"], ".2f"),
            *(format_figure(row[name], ",.0f") for name in ("gpu_hours", "backlog_gpu_hours", "usd")),
            format_percent(row["over_clairvoyant_share"], "+.1f"),
            *([format_figure(row["quality"], ".3f")] if has_quality else []),
        )
        for row in policies
    ]
    show_board(title, heads, rows)


def show_other_targets(found: pa.Table | None) -> None:
    """Print the attainment of each target for the tiers with several targets."""
    if found is None or found.num_rows == 0:
        return
    heads = ("\n\npolicy", "\n\ntier", "all\ntargets,\n%", "\nTTFT,\n%", "\nTPOT,\n%", "TTFT\np95,\ns",
             "TPOT\np95,\nms")  # fmt: skip
    rows = [
        (
            row["policy"],
            row["tier"],
            *(format_percent(row[f"{of}attainment_share"], ".1f") for of in ("", "ttft_", "tpot_")),
            format_figure(row["ttft_p95_s"], ".2f"),
            format_figure(None if row["tpot_p95_s"] is None else 1e3 * row["tpot_p95_s"], ".1f"),
        )
        for row in found.to_pylist()
    ]
    show_board("attainment by target   (TPOT: time per output token)", heads, rows)


def show_leaderboard(board: pa.Table) -> None:
    """Print the forecast methods an hour ahead, the best first; `board`: rows of forecast_leaderboard."""
    rows = [row for row in board.to_pylist() if row["horizon_minutes"] == 60]
    title = f"{rows[0]['tier']}, an hour ahead, over all days backtested   (shares in %)"
    heads = ("\n\nmethod", "\n\nWAPE", "\npinball\nloss", "at or\nbelow\nP90", "hour's\npeak\nunder",
             "peak\nabove\nits P90", "series\nwith P90\noff", "saved by the\nplan's method\n(95 % interval)",
             "CPU ms\nper fore-\ncast")  # fmt: skip
    shares = ("wape_share", "pinball_share", "below_p90_share", "under_share", "above_peak_p90_share")
    lines = []
    for row in rows:
        saved, low, high = (
            format_percent(row[f"saved{name}_share"], ".1f") for name in ("", "_low", "_high")
        )
        interval = "" if row["saved_share"] is None else saved if low == "–" else f"{saved} ({low} to {high})"
        figures = (format_percent(row[name], ".1f") for name in shares)
        off = f"{row['p90_off_endpoints']} of {row['endpoints']}"
        lines.append((row["method"], *figures, off, interval, format_figure(row["cpu_ms"], ",.1f")))
    show_board(title, heads, lines)


def show_promises(lines: Sequence[str]) -> None:
    """Print promises of plans and how they were kept, a line each."""
    for line in lines:
        OUT.print(f"promise  {line}")


def show_short_plans(plans: Sequence[Mapping[str, Any]]) -> None:
    """Warn of plans that the fleet cannot carry, with the instances missing in their worst hour.

    `plans`: rows of queries/short_plans.sql, each with its `remedy`.
    """
    for plan in plans:
        line = (
            "{policy}: the fleet is too small in {short_hours} of 24 hours; at {hour_start:%H:%M} "
            "{llm} in {served_region} is short of {short_tokens_per_s:,.0f} input tokens/s, "
            "{missing_instances} instances. {remedy}"
        ).format(**plan)
        ERR.print(line, style="yellow")
