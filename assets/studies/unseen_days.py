"""Compare policies on days that no search has seen: tuned on the days before, scored on the days after.

Each policy gets the same number of trials on the known days. A trial is one reading of the policy and one
factor of its knob (models/world/knobs.py), planned and replayed on the known days, from the forecasts of each
day. A trial must attain every tier's target on every known day, and with a margin: the more its days differ,
the more (`lowest_next_ratio`). The cheapest such trial is frozen. Then the unseen days are planned and
replayed with it, each from the forecasts of its own past. If no trial has the margin, the one that comes
closest is frozen; if that one misses on a known day, the policy has no rank. Days follow each other: what
waits at midnight is the next day's work.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

import pyarrow as pa

from fleetcast.assets.lake.learned_shares import learning_policies
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.problems import minimum_usd_by_llm
from fleetcast.assets.studies.board_day import (
    BoardDay,
    Knobs,
    MetricRow,
    replay_board_days,
    total_usd,
    with_knobs,
    with_policies,
    worst_attained_ratio,
)
from fleetcast.assets.studies.experiment import (
    EVALUATED,
    INPUT_TABLES,
    TUNED,
    Variant,
    scratch_lake,
    write_trials,
)
from fleetcast.assets.studies.latency_error import is_open_loop
from fleetcast.assets.studies.reference_cost import known_minutes_usd, longest_hold_s
from fleetcast.assets.studies.study import prepare_lake, prepared_lake_name
from fleetcast.models.trials.reading_search import (
    ReadingTrial,
    best_trial,
    distance_to_cliff,
    lowest_next_ratio,
    next_trial,
)
from fleetcast.models.world.config import CustomPolicy
from fleetcast.models.world.installed_objects import installed_sources
from fleetcast.models.world.knobs import Reading, policy_readings
from fleetcast.models.world.own_policies import GROUP, installed_policies
from fleetcast.models.world.policies import PolicySpec
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

EXPERIMENT = "unseen"
UNSEEN_POLICIES = (
    *("static", "reactive", "hpa", "reflex", "compact", "dynamo", "chiron", "llumnix"),
    *("lt_i", "lt_u", "lt_ua", "cauchy_mixed", "corrected", "corrected_llumnix", "clairvoyant"),
)
# Rules that count instances, with both mechanisms of compact: each differs from it by the rule alone.
CROSSED_POLICIES = {
    f"{name}_gaps": CustomPolicy(name, routing="least_prefill", batch_pull="gaps")
    for name in ("static", "reactive", "hpa", "reflex", "dynamo", "lt_ua", "corrected", "clairvoyant")
}
PERIODS_SQL = (
    "select distinct variant, day, purpose, labels['trials'] as trials, labels['setting'] as setting "
    "from trials where experiment = $experiment and trace = $trace and list_contains($days, day)"
)
UNSEEN_BOARD_SQL = (
    "select * from unseen_board where trace = $trace order by is_ranked desc, total_usd, policy"
)


class BoardPeriod(NamedTuple):
    """The days of a comparison, consecutive, and the number of trials of each policy on the known days."""

    known: Sequence[date]
    unseen: Sequence[date]
    trials: int


def last_days(last: date, unseen: int, known: int, trials: int) -> BoardPeriod:
    """Return the period whose last unseen day is `last`; ValueError for fewer than one of anything."""
    for count, what in ((unseen, "unseen days"), (known, "known days"), (trials, "trials")):
        if count < 1:
            raise ValueError(f"got {count} {what}, needed 1 or more. Raise it.")
    days = [last - timedelta(days=back) for back in reversed(range(unseen + known))]
    return BoardPeriod(days[:known], days[known:], trials)


def compare_on_unseen_days(
    settings: RunSettings, period: BoardPeriod, names: Sequence[str], progress: Progress
) -> pa.Table:
    """Tune each policy on the known days, score it on the unseen ones; return the rows of unseen_board.

    `names`: policies; empty: UNSEEN_POLICIES, CROSSED_POLICIES, and those that the config and installed
    packages add. A policy with a plan of model routing or in closed loop cannot be compared.

    ConfigError for an unknown policy or one that cannot be compared, LakeError for too short a history of the
    first known day.
    """
    settings, usable = with_crossed_policies(settings, names, "fleetcast board --unseen-days")
    added = (name for name in (*settings.config.policies, *installed_policies()) if name in usable)
    chosen = list(dict.fromkeys(names or (*UNSEEN_POLICIES, *added)))
    prepared = prepare_lake(settings, [*period.known, *period.unseen], progress)
    tune_and_score(with_policies(settings, chosen), period, prepared, progress)
    return settings.lake.sql(UNSEEN_BOARD_SQL, trace=settings.trace)


def with_crossed_policies(
    settings: RunSettings, names: Sequence[str], command: str
) -> tuple[RunSettings, list[str]]:
    """Return the settings with CROSSED_POLICIES, and the policies that can be compared.

    ConfigError, in the name of `command`, if one of `names` is unknown or cannot be compared.
    """
    settings = settings.with_config(policies=CROSSED_POLICIES | dict(settings.config.policies))
    rules = settings.config.rules
    learning = learning_policies(settings.config)  # the board tunes their knob as it tunes any
    usable = [name for name, rule in rules.items() if is_open_loop(rule) and name not in learning]
    for name in names:
        require_known(name, rules, "policy", command)
        if name not in usable:
            raise ConfigError(
                f"{name}: got a plan of model routing or in closed loop, or a policy that learns its share; "
                "needed one without. Leave it out."
            )
    return settings, usable


def tune_and_score(settings: RunSettings, period: BoardPeriod, prepared: Lake, progress: Progress) -> None:
    """Tune the policies of the config's leaderboard on the known days, and score them on the unseen ones.

    `prepared`: a lake with the requests, demand and forecasts of all these days.
    """
    search = tune_on_known_days(settings, period, prepared, progress)
    score_on_unseen_days(settings, period, prepared, search, progress)


class TunedPolicy(NamedTuple):
    """The trials of a policy on the known days; each counts by what its worst tier attains with a margin."""

    rule: PolicySpec
    readings: list[Reading]
    trials: list[ReadingTrial]

    def knobs(self, reading: int, factor: float) -> Knobs:
        """Return the settings of the policy at a number of its readings and a factor."""
        return self.readings[reading].knobs(self.rule, factor)

    @property
    def best(self) -> ReadingTrial:
        """The frozen trial."""
        return best_trial(self.trials)


def tune_on_known_days(
    settings: RunSettings, period: BoardPeriod, prepared: Lake, progress: Progress
) -> dict[str, TunedPolicy]:
    """Search each policy of the config's leaderboard on the known days; write its trials."""
    rows = dict[tuple[date, str], list[pa.Table]]()
    rules = {name: settings.config.rules[name] for name in settings.config.replay.policies}
    search = {name: TunedPolicy(rule, policy_readings(rule), []) for name, rule in rules.items()}
    with scratch_lake(settings, prepared, INPUT_TABLES) as scratch:
        boards = [BoardDay(scratch, day, progress) for day in period.known]
        for number in range(1, period.trials + 1):
            points = {
                name: point
                for name, tuned in search.items()
                if (point := next_trial(tuned.trials, len(tuned.readings), period.trials))
            }
            if not points:
                break
            progress.say(
                f"trial {number} of {period.trials} on {len(boards)} known days: {len(points)} policies"
            )
            figures = replay_board_days(
                boards, {name: search[name].knobs(*point) for name, point in points.items()}
            )
            for name, (reading, factor) in points.items():
                of_days = [found[name] for found in figures]
                search[name].trials.append(
                    ReadingTrial(
                        reading,
                        factor,
                        sum(total_usd(found) for found in of_days),
                        lowest_next_ratio([worst_attained_ratio(found) for found in of_days]),
                    )
                )
                for board, found in zip(boards, of_days, strict=True):
                    chosen = search[name].readings[reading]
                    rows.setdefault((board.day, name), []).append(
                        trial_rows(settings, board.day, name, chosen, factor, found, TUNED, period.trials)
                    )
    for (day, name), tables in rows.items():
        write_trials(settings, EXPERIMENT, day, pa.concat_tables(tables), name)
    return search


def score_on_unseen_days(
    settings: RunSettings,
    period: BoardPeriod,
    prepared: Lake,
    search: Mapping[str, TunedPolicy],
    progress: Progress,
) -> None:
    """Plan and replay each unseen day with the frozen trial of each policy; write the rows."""
    points = {name: (tuned.best.reading, tuned.best.factor) for name, tuned in search.items()}
    progress.say(f"score {len(period.unseen)} unseen days: {len(points)} policies")
    with scratch_lake(settings, prepared, INPUT_TABLES) as scratch:
        boards = [BoardDay(scratch, day, progress) for day in period.unseen]
        knobs = {name: search[name].knobs(*point) for name, point in points.items()}
        figures_by_day = replay_board_days(boards, knobs)
        chosen = with_knobs(boards[0].settings, knobs)  # the plans that it reads have these knobs
        references = [reference_rows(chosen, board.day, points) for board in boards]
    for day, figures, reference in zip(period.unseen, figures_by_day, references, strict=True):
        for name, (reading, factor) in points.items():
            tuned = search[name]
            margins: list[MetricRow] = [
                {"metric": "next_day_ratio", "value": tuned.best.attained},
                {"metric": "cliff_share", "value": distance_to_cliff(tuned.trials, tuned.best)},
            ]
            found = [*figures[name], *margins, *reference]
            rows = trial_rows(
                settings, day, name, tuned.readings[reading], factor, found, EVALUATED, period.trials
            )
            write_trials(settings, EXPERIMENT, day, rows, name)
    drop_other_periods(settings, period, progress)


def reference_rows(
    settings: RunSettings, day: date, points: Mapping[str, tuple[int, float]]
) -> list[MetricRow]:
    """Return what a fleet costs that knows each minute of a replayed day, and the hold of `compact`.

    Empty without `compact`.
    """
    if "compact" not in points:
        return []
    usd = known_minutes_usd(settings, day, points["compact"][1])
    return [
        {"metric": "known_minutes_usd", "value": usd},
        {"metric": "hold_s", "value": longest_hold_s(settings, day)},
    ]


def trial_rows(
    settings: RunSettings,
    day: date,
    name: str,
    reading: Reading,
    factor: float,
    figures: Sequence[Mapping[str, Any]],
    purpose: str,
    trials: int,
) -> pa.Table:
    """Return the rows of a policy's trial on a day; `trials`: number of trials that each policy may have."""
    rule = settings.config.rules[name]
    labels = {"reading": reading.name, "what": rule.what, "trials": str(trials)}
    labels["knows_the_day"] = str(rule.plan == "truth").lower()
    labels["setting"] = hash_setting(settings, name)
    floor = {"metric": "floor_usd", "value": minimum_fleet_usd(settings)}
    variant = Variant(name, settings, day, name, {"factor": factor}, labels, purpose=purpose)
    return variant.rows([*figures, floor])


def minimum_fleet_usd(settings: RunSettings) -> float:
    """Return what the minimum of instances costs in a day."""
    return sum(minimum_usd_by_llm(settings).values())


def hash_setting(settings: RunSettings, policy: str = "") -> str:
    """Return a digest of what the rows of a policy depend on; "": of what those of all policies do."""
    config, rule = settings.config, settings.config.rules.get(policy)
    replay = dataclasses.replace(config.replay, policies=())
    parts = (config.fleet, replay, config.plan, config.quality, settings.catalogue, rule)
    digest = hashlib.sha256(f"{prepared_lake_name(settings)} {parts!r}".encode())
    digest.update(installed_sources(GROUP, policy))
    return digest.hexdigest()[:16]


def drop_other_periods(settings: RunSettings, period: BoardPeriod, progress: Progress) -> None:
    """Delete the trials of other periods, requests, fleets and rules, so that the same is compared."""
    lake, scope = settings.lake, {"experiment": EXPERIMENT, "trace": settings.trace}
    purposes = {**dict.fromkeys(period.known, TUNED), **dict.fromkeys(period.unseen, EVALUATED)}
    expected = {(day, purpose, str(period.trials)) for day, purpose in purposes.items()}
    found, others = dict[str, set[tuple[date, str, str]]](), set[str]()
    now = {name: hash_setting(settings, name) for name in settings.config.rules}
    for row in lake.sql(PERIODS_SQL, **scope, days=list(purposes)).to_pylist():
        found.setdefault(row["variant"], set()).add((row["day"], row["purpose"], row["trials"]))
        if row["setting"] != now.get(row["variant"], ""):
            others.add(row["variant"])
    for file in lake.files("trials", **scope):
        is_of_period = any(f"day={day}" in file.parts for day in purposes)
        if not is_of_period or found.get(file.stem) != expected or file.stem in others:
            lake.remove(file)
    if others:
        progress.say(f"left out, made with other requests, fleet or policy: {', '.join(sorted(others))}")
