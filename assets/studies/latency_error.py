"""What if the latencies are off? The policies of a day in worlds that differ by the profiles' error.

In each draw all engines are somewhat faster or slower than their profiles say
(models/latency/latency_errors.py), the
same for every policy, so that policies are compared in the same world. Plans, targets and the fleet at the
start stay as they are: they were made by the profiles, and that these are wrong shows only in the replay.
Policies that watch the fleet react to what they see.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.lake.lake_preconditions import require_day
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.figure_files import save_day_figure
from fleetcast.assets.pages.figure_style import FAINT, Figure
from fleetcast.assets.replays.nightly_replays import require_same_config
from fleetcast.assets.replays.policy_inputs import (
    fleet_and_rules,
    planned_read_capacity,
    policy_schedules,
    reactive_capacity_share,
    with_measured_capacity,
)
from fleetcast.assets.replays.replay_figures import draw_cost_against_misses
from fleetcast.assets.replays.replay_workloads import read_workload
from fleetcast.assets.studies.experiment import (
    ReplayTrial,
    Variant,
    policy_metrics,
    replay_trials,
    write_trials,
)
from fleetcast.models.latency.latency_errors import (
    MEDIAN_SIGMAS,
    ProfileError,
    errors_in_use,
    sample_catalogues,
)
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.policies import PolicySpec
from fleetcast.models.world.toml_dataclasses import require_known

LATENCY_DRAWS = 12
PROFILE_DRAW = 0  # the draw of the profiles themselves: the day's scoreboard
ENDS = ("value", "low", "high")
TWO_SIDED_90 = 1.645  # standard deviations
SCORE_INTERVALS_SQL = "select * from scoreboard_intervals where trace = $trace and day = $day order by all"


def profile_errors(settings: RunSettings) -> list[ProfileError]:
    """The errors of the profiles that the config's fleet runs on."""
    return errors_in_use(settings.catalogue, settings.config.fleet.deployments.items())


def replay_latency_draws(
    settings: RunSettings, day: date, policies: Sequence[str], draws: int, progress: Progress
) -> pa.Table:
    """Replay these policies, else all on the day's scoreboard, in so many draws; write them as trials.

    Raises
    ------
    LakeError
        The day has not been replayed.
    ConfigError
        It was, under another config; or a policy has no name, no replay, or plans anew in each world.
    ValueError
        Too few draws, or too many.
    """
    chosen = open_loop_policies(settings, day, policies)
    worlds = sample_catalogues(
        settings.catalogue, profile_errors(settings), draws, settings.config.trace.seed
    )
    workload, drives = read_workload(settings, day), policy_schedules(settings, day)
    sustained = planned_read_capacity(settings, day)
    strictest = settings.catalogue.strictest_tier(pc.unique(workload.requests["tier"]).to_pylist())
    labels = {"tier": strictest or ""}

    def trial(draw: int, world: Catalogue, policy: str) -> ReplayTrial:
        own = replace(settings, catalogue=world)
        fleet, rules = fleet_and_rules(own, policy)
        fleet = with_measured_capacity(
            own.under(policy), fleet, sustained * reactive_capacity_share(own.config, policy)
        )
        variant = Variant(policy, own, day, policy, labels=labels, draw=draw)
        return ReplayTrial(variant, fleet, rules, drives[policy])

    trials = [trial(draw, world, name) for draw, world in enumerate(worlds, start=1) for name in chosen]
    tables = [
        Variant(name, settings, day, name, labels=labels, draw=PROFILE_DRAW).rows(
            policy_metrics(settings.lake, name, trace=settings.trace, day=day)
        )
        for name in chosen
    ]
    tables += replay_trials(trials, len(trials), workload, f"replay {day} on other latencies", progress)
    write_trials(settings, "error", day, pa.concat_tables(tables))
    query = "select * from error_draws where trace = $trace and day = $day order by all"
    return settings.lake.sql(query, trace=settings.trace, day=day)


def open_loop_policies(settings: RunSettings, day: date, policies: Sequence[str]) -> list[str]:
    """These policies, else all, of those on the day's scoreboard whose plans are made before the replay.

    LakeError or ConfigError (`replay_draws`) where the day or a policy cannot be.
    """
    for policy in policies:
        require_known(policy, settings.config.rules, "policy", "fleetcast error")
    require_day(settings.lake, "outcomes", settings.trace, day)
    require_same_config(settings, day)
    query = "select distinct policy from scorecard where trace = $trace and day = $day"
    found = set(settings.lake.sql(query, trace=settings.trace, day=day)["policy"].to_pylist())
    rules = settings.config.rules
    there = [name for name, rule in rules.items() if name in found and is_open_loop(rule)]
    for policy in policies:
        require_known(policy, there, "policy with an open-loop plan", f"the scoreboard of {day}")
    return [name for name in there if not policies or name in policies]


def is_open_loop(rule: PolicySpec) -> bool:
    """Whether what it plans is instances alone, before the replay."""
    return not rule.is_closed and rule.answers is None


def read_score_intervals(settings: RunSettings, day: date, board: pa.Table) -> list[dict[str, Any]]:
    """The mart scoreboard_intervals of a day, if its draws are of this very scoreboard; else nothing.

    A night that is made again under another config leaves draws of a board that is no more.
    """
    found = settings.lake.sql(SCORE_INTERVALS_SQL, trace=settings.trace, day=day).to_pylist()
    of_policy = {row["policy"]: row for row in board.to_pylist()}
    shown = [row for policy in of_policy for row in found if row["policy"] == policy]
    is_of_it = all(is_same_figure(of_policy[row["policy"]].get(row["figure"]), row["value"]) for row in shown)
    return shown if is_of_it else []


def is_same_figure(one: float | None, other: float) -> bool:
    """Whether two figures are the same but for the order in which they were summed."""
    return one is not None and math.isclose(one, other, rel_tol=1e-9)


def read_score_differences(settings: RunSettings, day: date) -> list[dict[str, Any]]:
    """The mart scoreboard_differences of a day: every two policies, figure by figure."""
    query = "select * from scoreboard_differences where trace = $trace and day = $day order by all"
    return settings.lake.sql(query, trace=settings.trace, day=day).to_pylist()


def draw_latency_error(settings: RunSettings, day: date) -> LakePath:
    """The scoreboard's cost against misses, with what the error of the latencies does to both."""
    found = settings.lake.sql(SCORE_INTERVALS_SQL, trace=settings.trace, day=day).to_pandas()
    return save_day_figure(settings, day, "latency_error", lambda: draw_intervals(found))


def draw_intervals(found: pd.DataFrame) -> Figure:
    """Each policy as a point of cost and misses in bars from low to high.

    `found`: policy, figure, value, low, high, with the figures usd and missed_share.
    """
    ends = found.pivot(index="policy", columns="figure").dropna()
    figure = draw_cost_against_misses(ends["value"].reset_index())
    for _, row in ends.iterrows():
        usd, missed = ([row[end, name] for end in ENDS] for name in ("usd", "missed_share"))
        for x, y in ((usd[1:], [missed[0]] * 2), ([usd[0]] * 2, missed[1:])):
            bar = np.array(x) / 1e3, 100 * np.array(y)
            figure.axes[0].plot(*bar, color=FAINT, lw=3, zorder=1)
    top = max([figure.axes[0].get_ylim()[1], *(105 * ends["high", "missed_share"])])
    figure.axes[0].set_ylim(top=top)
    return figure


def usd_error_share(settings: RunSettings, rows: Sequence[Mapping[str, Any]]) -> float:
    """How far the cost of a plan may be off, 90 of 100 times, as a share of it; `rows` of it: llm, usd.

    To first order: an llm that is so much slower needs so many more instances. The worse part of a profile
    counts for all of it; llms err apart from each other, so that the error of the sum is smaller.
    """
    worst: dict[str, float] = {}
    for error in profile_errors(settings):
        share = max(error.prefill_share, error.decode_share)
        worst[error.profile.llm] = max(share, worst.get(error.profile.llm, 0.0))
    usd = dict.fromkeys(worst, 0.0)
    for row in rows:
        usd[row["llm"]] += row["usd"]
    spread = TWO_SIDED_90 / MEDIAN_SIGMAS * float(np.linalg.norm([usd[llm] * worst[llm] for llm in worst]))
    total = sum(usd.values())
    return spread / total if total else 0.0
