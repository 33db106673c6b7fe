"""What a night prints: the scoreboard, other targets, the leaderboard of forecasts, plans that are short."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from fleetcast.assets.pages.tier_columns import attainment_column, scoreboard_tiers, strictest_scored_tier
from fleetcast.pipelines.terminal import ERR
from fleetcast.pipelines.terminal_tables import format_figure, format_percent, show_board


def show_scoreboard(board: pa.Table, trace: str, day: date) -> None:
    """The scoreboard of a day: what each policy cost and what it missed; quality, where it is known."""
    told = board.to_pylist()
    first = strictest_scored_tier(told)
    others = [tier for tier in scoreboard_tiers(board) if tier != first]
    is_known = any(row["quality"] is not None for row in told)
    title = f"{trace}, {day}   (attainment and distance in %, TTFT in s)"
    heads = ("\n\npolicy", f"SLA\nattained\n{first}", "\nworst\nllm", *(f"\n\n{tier}" for tier in others),
             f"TTFT\np95\n{first}", "\nGPU-\nhours", "\nleft\nto do", "\n\nUSD",
             "over\nclair-\nvoyant", *(["\n\nquality"] if is_known else []))  # fmt: skip
    shares = ("attainment_share", "worst_llm_attainment_share", *map(attainment_column, others))
    rows = [
        (
            row["policy"],
            *(format_percent(row[name], ".1f") for name in shares),
            format_figure(row["ttft_p95_s"], ".2f"),
            *(format_figure(row[name], ",.0f") for name in ("gpu_hours", "backlog_gpu_hours", "usd")),
            format_percent(row["over_clairvoyant_share"], "+.1f"),
            *([format_figure(row["quality"], ".3f")] if is_known else []),
        )
        for row in told
    ]
    show_board(title, heads, rows)


def show_other_targets(found: pa.Table | None) -> None:
    """How tiers fared by targets that the scoreboard does not tell apart."""
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
    """The methods side by side an hour ahead, the best first."""
    rows = [row for row in board.to_pylist() if row["horizon_minutes"] == 60]
    title = f"{rows[0]['tier']}, an hour ahead, over all days backtested   (shares in %)"
    heads = ("\n\nmethod", "\n\nWAPE", "\npinball\nloss", "at or\nbelow\nP90", "hour's\npeak\nunder",
             "peak\nabove\nits P90", "series\nwith P90\noff", "saved by the\nplanned one\n(95 % interval)",
             "CPU ms\nper fore-\ncast")  # fmt: skip
    shares = ("wape_share", "pinball_share", "below_p90_share", "under_share", "above_peak_p90_share")
    told = []
    for row in rows:
        saved, low, high = (
            format_percent(row[f"saved{name}_share"], ".1f") for name in ("", "_low", "_high")
        )
        interval = "" if row["saved_share"] is None else saved if low == "–" else f"{saved} ({low} to {high})"
        figures = (format_percent(row[name], ".1f") for name in shares)
        off = f"{row['p90_off_endpoints']} of {row['endpoints']}"
        told.append((row["method"], *figures, off, interval, format_figure(row["cpu_ms"], ",.1f")))
    show_board(title, heads, told)


def show_short_plans(plans: Sequence[Mapping[str, Any]]) -> None:
    """Which plans the fleet cannot carry, and how many instances are missing in their worst hour."""
    for plan in plans:
        line = (
            "{policy}: the fleet is too small in {short_hours} of 24 hours; at {hour_start:%H:%M} {llm} in "
            "{region} is short of {short_tokens_per_s:,.0f} input tokens/s, {missing_instances} instances. "
            "Raise max_instances or cap_gpus."
        ).format(**plan)
        ERR.print(line, style="yellow", markup=False, soft_wrap=True)
