"""The numbers of the last known day: each policy, what the advised one saves, how sure that is."""

import math
from datetime import date

from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Numbers

ADVISED_POLICIES = (
    "day_ahead",
    "corrected",
    "lt_ua",
)  # whose day is held against today's, the first that was replayed
BASELINE_POLICY = "static"
USD_DIFFERENCE_QUERY = """
select * from scoreboard_differences
where trace = $trace and day = $day and policy = $policy and against = $against and figure = 'usd'
"""


def policies_section(settings: RunSettings, day: date) -> Numbers:
    """The last known day under each policy, planned from what came before it."""
    board = {
        row["policy"]: row
        for row in settings.lake.sql("reads/advice_board.sql", trace=settings.trace, day=day).to_pylist()
    }
    order = [name for name in settings.config.replay.policies if name in board]
    advised = next((name for name in ADVISED_POLICIES if name in board), None)
    rows = [
        {
            "policy": name,
            "what": settings.config.rules[name].what,
            "usd": board[name]["usd"],
            "gpu_hours": board[name]["gpu_hours"],
            "in_time_share": board[name]["in_time_share"],
        }
        for name in order
    ]
    return {"day": day, "advised": advised, "policies": rows}


def saving_section(settings: RunSettings, day: date, board: Numbers, today: Numbers | None) -> Numbers | None:
    """What the advised policy would have saved on the last known day against what runs today."""
    own = {row["policy"]: row for row in board["policies"]}
    if board["advised"] is None or (today is None and BASELINE_POLICY not in own):
        return None
    ours, theirs = (
        own[board["advised"]],
        today or {**own[BASELINE_POLICY], "fleet": "one fleet for the peak, all day"},
    )
    saving = {
        "day": day,
        "today": theirs["fleet"],
        "is_told": today is not None,
        "today_usd": theirs["usd"],
        "today_gpu_hours": theirs["gpu_hours"],
        "advised_usd": ours["usd"],
        "usd": theirs["usd"] - ours["usd"],
        "share": 1 - ours["usd"] / theirs["usd"] if theirs["usd"] else None,
        "today_in_time_share": theirs["in_time_share"],
        "advised_in_time_share": ours["in_time_share"],
        "low_usd": None,
        "high_usd": None,
        "is_beyond_error": None,
    }
    if today is None:
        asked = {"policy": BASELINE_POLICY, "against": board["advised"]}
        for row in settings.lake.sql(
            USD_DIFFERENCE_QUERY, trace=settings.trace, day=day, **asked
        ).to_pylist():
            if math.isclose(row["difference"], saving["usd"], abs_tol=1e-6):  # draws of this very board
                saving |= {
                    "low_usd": row["low"],
                    "high_usd": row["high"],
                    "is_beyond_error": row["is_carried"],
                }
    return saving


def short_trace_saving_section(tomorrow: Numbers, today: Numbers | None) -> Numbers | None:
    """The same of a trace without two days: the hours as they were sized, against what runs today."""
    rows = [row for row in tomorrow["hours"] if row["demand_tokens_per_s"] is not None]
    asked = sum(row["requests"] for row in rows)
    if today is None or not asked:
        return None
    met = sum(row["requests"] * row["attainment_share"] for row in rows)
    return {
        "day": None,
        "today": today["fleet"],
        "is_told": True,
        "today_usd": today["usd"],
        "today_gpu_hours": today["gpu_hours"],
        "advised_usd": tomorrow["usd"],
        "usd": today["usd"] - tomorrow["usd"],
        "share": 1 - tomorrow["usd"] / today["usd"],
        "today_in_time_share": today["in_time_share"],
        "advised_in_time_share": met / asked,
        "low_usd": None,
        "high_usd": None,
        "is_beyond_error": None,
    }


def certainty_section(settings: RunSettings, day: date | None, board: Numbers | None) -> Numbers:
    """How near forecasts made at midnight were, and what the advised policy attained, by tier."""
    asked = {"trace": settings.trace, "tier": INTERACTIVE, "method": settings.config.forecast.method}
    [forecast] = settings.lake.sql("reads/advice_forecast_errors.sql", **asked).to_pylist()
    tiers: list[Numbers] = []
    if day is not None and board is not None and board["advised"] is not None:
        targets = {name: tier.attainment_target_share for name, tier in settings.catalogue.tiers.items()}
        rows = settings.lake.sql(
            "reads/advice_tiers.sql", trace=settings.trace, day=day, policy=board["advised"]
        ).to_pylist()
        tiers = [
            {
                "tier": row["tier"],
                "in_time_share": row["attainment_share"],
                "target_share": targets[row["tier"]],
            }
            for row in rows
        ]
    return {
        "forecast_hours": forecast["hours"] or 0,
        "forecast_wape_share": forecast["wape_share"],
        "forecast_peak_below_p90_share": forecast["peak_below_p90_share"],
        "tiers": tiers,
    }
