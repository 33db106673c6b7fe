"""Compute the sections of the last known day: each policy, the saving, and how certain it is."""

from datetime import date

from fleetcast.assets.demand.demand import INTERACTIVE
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.models.aliases import Numbers

# Without a promise the first of these that was replayed is the advised policy.
ADVISED_POLICIES = ("day_ahead", "corrected", "lt_ua")
BASELINE_POLICY = "static"


def policies_section(settings: RunSettings, day: date, promise: Numbers | None = None) -> Numbers:
    """Return the last known day under each policy, planned from the days before it.

    With a promise the advised policy is its rule: none if that was not replayed, or keeps no promise.
    """
    board = {
        row["policy"]: row
        for row in settings.lake.sql("reads/advice_board.sql", trace=settings.trace, day=day).to_pylist()
    }
    names = ADVISED_POLICIES if promise is None else (promise["rule"],) if promise["is_kept"] else ()
    advised = next((name for name in names if name in board), None)
    rows = [
        board[name] | {"what": settings.config.rules[name].what}
        for name in settings.config.replay.policies
        if name in board
    ]
    return {"day": day, "advised": advised, "policies": rows}


def saving_section(day: date, found: Numbers, today: Numbers | None) -> Numbers | None:
    """Return the saving of the advised rule on the last known day, compared with the current fleet.

    With a promise, the advised rule has its headroom, and the interval is that over the versions of tomorrow,
    which need not hold the last day's. The saving is beyond its error where both have one sign.
    A nightly run has only the replayed policies, without an interval.
    """
    choice = found["choice"]
    rules = {row["rule"]: row for row in choice["rules"]} if choice else {}
    if choice:
        advised = next((row["last_day"] for row in choice["rules"] if row["is_advised"]), None)
        plain = rules["static"]["last_day"] if "static" in rules else None
    else:
        policies = {row["policy"]: row for row in found["board"]["policies"]}
        advised, plain = policies.get(found["board"]["advised"]), policies.get(BASELINE_POLICY)
    current = today or plain
    if advised is None or current is None:
        return None
    saving = _saving(day, current, advised, is_known=today is not None)
    low, high = _saving_interval(found, today)
    if low is not None and high is not None and high > low:
        is_sure = (low > 0 and saving["usd"] > 0) or (high < 0 and saving["usd"] < 0)  # on both days
        saving |= {"low_usd": low, "high_usd": high, "is_beyond_error": is_sure}
    return saving


def _saving(day: date | None, current: Numbers, advised: Numbers, is_known: bool) -> Numbers:
    """Return what one fleet instead of another saves; both have `usd`, `gpu_hours` and `in_time_share`."""
    return {
        "day": day,
        "today": current.get("fleet", "one fleet all day, sized by the same promise"),
        "is_told": is_known,
        "today_usd": current["usd"],
        "today_gpu_hours": current["gpu_hours"],
        "advised_usd": advised["usd"],
        "advised_gpu_hours": advised["gpu_hours"],
        "usd": current["usd"] - advised["usd"],
        "share": 1 - advised["usd"] / current["usd"] if current["usd"] else None,
        "today_in_time_share": current["in_time_share"],
        "advised_in_time_share": advised["in_time_share"],
        "low_usd": None,
        "high_usd": None,
        "is_beyond_error": None,
    }


def _saving_interval(found: Numbers, today: Numbers | None) -> tuple[float | None, float | None]:
    """Return the interval of the USD saved tomorrow; None without a promise, or where it has no width."""
    promise, split = found["promise"], found["split"]
    if promise is not None and today is not None:  # today's fleet costs the same on every day
        return today["usd"] - promise["usd_high"], today["usd"] - promise["usd_low"]
    by_hours = split.get("by_hours")
    return (None, None) if by_hours is None else (by_hours["usd_low"], by_hours["usd_high"])


def short_trace_saving_section(tomorrow: Numbers, today: Numbers | None) -> Numbers | None:
    """Return the saving on a trace of less than two days: sized hours compared with the current fleet."""
    rows = [row for row in tomorrow["hours"] if row["demand_tokens_per_s"] is not None]
    requests = sum(row["requests"] for row in rows)
    if today is None or not requests:
        return None
    met = sum(row["requests"] * row["attainment_share"] for row in rows)
    return _saving(None, today, {**tomorrow, "in_time_share": met / requests}, is_known=True)


def certainty_section(settings: RunSettings, day: date | None, board: Numbers | None) -> Numbers:
    """Return the error of forecasts made at midnight, and the advised policy's attainment by tier."""
    scope = {"trace": settings.trace, "tier": INTERACTIVE, "method": settings.config.forecast.method}
    [forecast] = settings.lake.sql("reads/advice_forecast_errors.sql", **scope).to_pylist()
    tiers: list[Numbers] = []
    if day is not None and board is not None and board["advised"] is not None:
        targets = {name: tier.attainment_target_share for name, tier in settings.catalogue.tiers.items()}
        rows = settings.lake.sql(
            "reads/advice_tiers.sql", trace=settings.trace, day=day, policy=board["advised"]
        ).to_pylist()
        tiers = [row | {"target_share": targets[row["tier"]]} for row in rows]
    return {
        "forecast_hours": forecast["hours"] or 0,
        "forecast_wape_share": forecast["wape_share"],
        "forecast_peak_below_p90_share": forecast["peak_below_p90_share"],
        "tiers": tiers,
    }
