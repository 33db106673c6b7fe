"""Compute the sections of the promise: rule, intervals, choice, past days and saving."""

from collections.abc import Sequence
from datetime import date, timedelta

import numpy as np

from fleetcast.assets.advice import rule_replays, tomorrow_draws
from fleetcast.assets.advice.advised_days import describe_largest_fleet
from fleetcast.assets.advice.promise import (
    PROMISE_SHARE,
    Evidence,
    PastDay,
    Promise,
    PromiseSearch,
    RentedPromise,
    choose_rule,
    share_interval,
    versions_interval,
)
from fleetcast.assets.advice.rule_replays import PLANNED_RULES, DayFigures, SizedRule
from fleetcast.assets.lake.settings import HOURS_OF_DAY, Progress, RunSettings, midnight
from fleetcast.assets.studies.unseen_days import minimum_fleet_usd
from fleetcast.models.aliases import Floats, Numbers
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue import Catalogue

SHOWN_SHARE = 0.05  # of the versions, below and above the band of a chart
GRADED_DRAWS = 20  # versions of a past day, to grade the intervals
SURVIVAL_DRAWS = 8


def search_promise(
    settings: RunSettings,
    days: Sequence[date],
    whole: Sequence[date],
    day: date,
    survive: str,
    progress: Progress,
) -> tuple[PromiseSearch, Promise]:
    """Size and choose a rule for `day`.

    `days`: days before it that were planned at their midnight; `whole`: all days to resample, oldest first.
    """
    past = [
        PastDay(rule_replays.read_midnight_plan(settings, one), tomorrow_draws.recorded_draw(settings, one))
        for one in days
    ]
    draws = tomorrow_draws.sample_tomorrow(settings, day, whole)
    search = PromiseSearch(settings, past, rule_replays.read_midnight_plan(settings, day), draws)
    with progress.bar(f"promise for {day}", 0):
        if survive == "region":
            return search_region_promise(search)
        return search, choose_rule(search, minimum_fleet_usd(settings))


def search_region_promise(search: PromiseSearch) -> tuple[PromiseSearch, Promise]:
    """Size and choose a rule, then hold its size without any one region; return the search with that spare.

    The rule is sized without the spare: while no region is lost, the spare would hide that headroom is
    missing.
    """
    settings = search.settings
    found = choose_rule(search, minimum_fleet_usd(settings), PLANNED_RULES)
    spared = search.with_plans(lambda plan: rule_replays.with_region_spare(settings, plan))
    sized = {rule: spared.evidence(evidence.sized) for rule, evidence in found.sized.items()}
    return spared, Promise(spared.evidence(found.advised.sized), found.is_kept, sized)


def promise_section(settings: RunSettings, search: PromiseSearch, found: Promise, survive: str) -> Numbers:
    """Return the promise for tomorrow: rule, intervals of attainment and cost, survival and its price.

    Without a rule that keeps its promise these are the figures of the one that comes closest. Intervals are
    of versions with the latencies of the profiles: an error of a profile does not differ from day to day.
    """
    advised = found.advised
    profiled = search.with_draws(tomorrow_draws.as_profiled(settings, search.draws))
    days = profiled.future_days(advised.sized)
    return {
        "day": search.plan.day,
        "rule": advised.sized.rule,
        "headroom_share": advised.sized.headroom_share,
        "fleet": describe_largest_fleet(
            settings, rule_replays.sized_targets(settings, search.plan, advised.sized)
        ),
        "is_kept": found.is_kept,
        "kept_share": search.kept_share(advised.sized),
        "required_share": PROMISE_SHARE,
        "draws": len(advised.future),
        "past_days": len(advised.past),
        "past_days_on_target": sum(day.is_on_target(settings.catalogue) for day in advised.past),
        **_intervals(settings, days),
        "usd_mean": float(np.mean([figures.usd for figures in days])),
        "tiers": _tier_rows(settings.catalogue, days, advised.future),
        "by_hour": _hours_of_draws(settings, search, advised),
        "past_by_hour": [
            {"at": midnight(past.plan.day) + timedelta(hours=hour), "gpus": float(gpus)}
            for past, came in zip(search.past, advised.past, strict=True)
            for hour, gpus in enumerate(_gpus_by_hour(settings, came))
        ],
        "survival": _survival(settings, search, advised, survive),
        "profile_errors_usd": profile_errors_usd(profiled, advised.sized) if found.is_kept else 0.0,
        "remedy": "",
    }


def profile_errors_usd(profiled: PromiseSearch, advised: SizedRule) -> float:
    """Return the part of tomorrow's cost that only the errors of the latency profiles require, USD.

    It is the mean cost of the advised size less that of the least headroom with which its rule keeps the same
    promise on `profiled`: versions whose engines are as fast as their profiles. Both are sized without the
    spare of a lost region, and cost with it.
    """
    sizing = profiled
    if profiled.plan.if_lost is not None:
        sizing = profiled.with_plans(lambda plan: plan._replace(if_lost=None))
    with_errors, without = (
        np.mean([figures.usd for figures in profiled.future_days(sized)])
        for sized in (advised, sizing.least_size(advised))
    )
    return float(with_errors - without)


def _intervals(settings: RunSettings, days: Sequence[DayFigures]) -> Numbers:
    """Return the intervals of a day's share in time, and of its cost: at least that of the smallest fleet."""
    low, high = share_interval(np.array([figures.in_time_share for figures in days]))
    usd_low, usd_high = versions_interval(np.array([figures.usd for figures in days]))
    return {
        "in_time_low_share": low,
        "in_time_high_share": high,
        "usd_low": min(usd_high, max(usd_low, minimum_fleet_usd(settings))),
        "usd_high": usd_high,
    }


def _gpus_by_hour(settings: RunSettings, figures: DayFigures) -> Floats:
    """Return the paid GPUs of each hour, shape (24,)."""
    return figures.instances @ np.array([row.kind.gpus for row in settings.grid.pools])


def _hours_of_draws(settings: RunSettings, search: PromiseSearch, advised: Evidence) -> list[Numbers]:
    """Return, by hour, intervals of the interactive load in tokens/s and of the GPUs, over all versions."""
    is_interactive = np.array([not tier.is_held for tier in settings.catalogue.tiers.values()])
    loads = np.stack(
        [
            np.bincount(
                np.minimum(draw.trace.arrival_s // HOUR_S, HOURS_OF_DAY - 1).astype(int),
                weights=draw.trace.input_tokens * is_interactive[draw.trace.tier] / HOUR_S,
                minlength=HOURS_OF_DAY,
            )
            for draw in search.draws
        ]
    )
    gpus = np.stack([_gpus_by_hour(settings, figures) for figures in advised.future])
    ends = (SHOWN_SHARE, 1 - SHOWN_SHARE)
    load_low, load_high = np.quantile(loads, ends, axis=0)
    gpus_low, gpus_high = np.quantile(gpus, ends, axis=0)
    return [
        {
            "hour": hour,
            "load_low_tokens_per_s": float(load_low[hour]),
            "load_high_tokens_per_s": float(load_high[hour]),
            "gpus_low": float(gpus_low[hour]),
            "gpus_mean": float(gpus[:, hour].mean()),
            "gpus_high": float(gpus_high[hour]),
        }
        for hour in range(HOURS_OF_DAY)
    ]


def _tier_rows(
    catalogue: Catalogue, days: Sequence[DayFigures], with_errors: Sequence[DayFigures]
) -> list[Numbers]:
    """Return the intervals of each tier's attainment, at the profiles and with their errors; its target."""
    rows = []
    for name, tier in catalogue.tiers.items():
        shares, wider = (
            np.array([day.attained[name] for day in versions if name in day.attained])
            for versions in (days, with_errors)
        )
        if shares.size:
            row: Numbers = {"tier": name, "target_share": tier.attainment_target_share}
            row["low_share"], row["high_share"] = share_interval(shares)
            row["low_with_errors_share"], row["high_with_errors_share"] = share_interval(wider)
            rows.append(row)
    return rows


def _survival(settings: RunSettings, search: PromiseSearch, advised: Evidence, survive: str) -> Numbers:
    """Return what the fleet survives, and what that costs: the same draws, with what the load needs."""
    found = {"kind": survive, "regions": list(dict.fromkeys(row.region for row in settings.grid.pools))}
    if survive == "none":
        return found | {"usd": 0.0, "without_kept_share": search.kept_share(advised.sized)}
    draws = search.draws[:SURVIVAL_DRAWS]
    bare = PromiseSearch(settings, [], rule_replays.without_spare(settings, search.plan), draws)
    figures = bare.future_days(advised.sized)
    with_spare = advised.future[: len(figures)]
    usd = float(np.mean([a.usd - b.usd for a, b in zip(with_spare, figures, strict=True)]))
    return found | {"usd": usd, "without_kept_share": bare.kept_share(advised.sized)}


def choice_section(search: PromiseSearch, found: Promise, settings: RunSettings) -> Numbers:
    """Return every rule on the past days and tomorrow, at the headroom with which it keeps its promise."""
    rows, shown = list[Numbers](), {**found.sized, found.advised.sized.rule: found.advised}
    for rule in rule_replays.ADVISED_RULES:
        sized = shown[rule].sized if rule in shown else SizedRule(rule)
        past = search.known_past_days(sized)
        if past is None:
            continue
        rows.append(
            {
                "rule": rule,
                "what": settings.config.rules[rule].what,
                "is_advised": found.is_kept and sized == found.advised.sized,
                "is_sized": rule in shown,
                "headroom_share": sized.headroom_share,
                "usd_mean": float(np.mean([day.usd for day in past])) if past else None,
                "gpu_hours_mean": float(np.mean([day.gpu_hours for day in past])) if past else None,
                "days_on_target": sum(day.is_on_target(settings.catalogue) for day in past),
                "in_time_least_share": min((day.in_time_share for day in past), default=None),
                "last_day": _totals(past[-1]) if past else None,
            }
        )
    days = [day.plan.day for day in search.past]
    # Whether the advised rule costs less than one fleet all day; None where that was not sized.
    saves = found.advised.sized.rule != "static" if "static" in found.sized else None
    return {"days": days, "rules": rows, "scaling_saves": saves}


def _totals(figures: DayFigures) -> Numbers:
    """Return the totals of a day."""
    return {name: getattr(figures, name) for name in ("usd", "gpu_hours", "in_time_share")}


def grade_past_days(
    settings: RunSettings, search: PromiseSearch, sized: SizedRule, before: Sequence[date]
) -> list[Numbers]:
    """Return, for each past day, what the promise of its midnight was and what came.

    `before`: all whole days of the trace, oldest first. The headroom was chosen with these days, the
    intervals were not.
    """
    rows = []
    for past, came in zip(search.past, search.past_days(sized), strict=True):
        known = [one for one in before if one < past.plan.day]
        draws = tomorrow_draws.sample_tomorrow(settings, past.plan.day, known, GRADED_DRAWS)
        at_midnight = PromiseSearch(settings, [], past.plan, tomorrow_draws.as_profiled(settings, draws))
        rows.append(grade_row(settings, past.plan.day, at_midnight.future_days(sized), came))
    return rows


def grade_row(settings: RunSettings, day: date, promised: Sequence[DayFigures], came: DayFigures) -> Numbers:
    """Return what was promised of a day and what came."""
    ends = _intervals(settings, promised)
    is_share_inside = is_inside(came.in_time_share, ends["in_time_low_share"], ends["in_time_high_share"])
    return {
        "day": day,
        **ends,
        "in_time_share": came.in_time_share,
        "usd": came.usd,
        "is_on_target": came.is_on_target(settings.catalogue),
        "is_inside": is_share_inside and is_inside(came.usd, ends["usd_low"], ends["usd_high"]),
    }


def is_inside(value: float, low: float, high: float) -> bool:
    """Whether a value lies in an interval, up to the order of sums."""
    slack = 1e-6 * max(abs(low), abs(high), 1e-9)
    return low - slack <= value <= high + slack


def saving_split(
    found: Promise, today_usd: float | None = None, rented: RentedPromise | None = None
) -> Numbers:
    """Return what each change saves in USD per day of tomorrow's versions, with its interval.

    `right_size`: today's fleet, `today_usd` on any day, less one fleet all day of the same GPUs. `by_hours`:
    one fleet all day less the advised rule. `gpu_type`: the advised rule on today's GPUs less that on rented
    ones, if it costs more. `batch_in_gaps`: reflex less compact. Null where one of the two was not sized. An
    interval without width is null too: then no version moved the cost.
    """
    if not found.is_kept:
        return {}
    by_rule = {**found.sized, found.advised.sized.rule: found.advised}
    right_size = None
    if today_usd is not None and "static" in by_rule:
        right_size = saved_row([today_usd - figures.usd for figures in by_rule["static"].future])
    pairs = {"by_hours": ("static", found.advised.sized.rule), "batch_in_gaps": ("reflex", "compact")}
    gpu_type = None
    if rented is not None and (saved := saved_by(found.advised, rented.advised))["usd"] > 0:
        gpu_type = {"fleet": rented.fleet, **saved}
    return {"right_size": right_size, "gpu_type": gpu_type} | {
        name: saved_by(by_rule[more], by_rule[less]) if is_known else None
        for name, (more, less) in pairs.items()
        for is_known in [more != less and {more, less} <= by_rule.keys()]
    }


def saved_by(more: Evidence, less: Evidence) -> Numbers:
    """Return `saved_row` of one sized rule instead of another, on the same versions."""
    return saved_row([a.usd - b.usd for a, b in zip(more.future, less.future, strict=False)])


def saved_row(saved_usd: Sequence[float]) -> Numbers:
    """Return the mean of the USD saved on each version of tomorrow, with its interval."""
    saved = np.array(saved_usd)
    low, high = versions_interval(saved)
    has_width = not is_inside(high, low, low)
    return {
        "usd": float(saved.mean()),
        "usd_low": low if has_width else None,
        "usd_high": high if has_width else None,
    }
