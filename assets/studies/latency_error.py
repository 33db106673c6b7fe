"""Measure the effect of latency errors: replay the policies of a day with resampled latency profiles.

In each draw all engines are faster or slower than their profiles (models/latency/latency_errors.py), equally
for every policy, so that policies are compared on the same latencies. Plans, targets and the initial fleet do
not change: they were computed from the profiles, and the error shows only in the replay. Reactive policies
react to the changed latencies.
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

from fleetcast.assets.lake.learned_shares import with_learned_shares
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
    NINETY_SIGMAS,
    ProfileError,
    errors_in_use,
    ninety_reach,
    sample_catalogues,
)
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import ErrorLaw
from fleetcast.models.world.policies import PolicySpec
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

LATENCY_DRAWS = 12
PROFILE_DRAW = 0  # number of the draw without errors: the day's scoreboard
ENDS = ("value", "low", "high")


def profile_errors(settings: RunSettings) -> list[ProfileError]:
    """Return the errors of the profiles that the config's fleet runs on."""
    return errors_in_use(settings.catalogue, settings.config.fleet.deployments.items())


def replay_latency_draws(
    settings: RunSettings, day: date, policies: Sequence[str], draws: int, progress: Progress
) -> pa.Table:
    """Replay these policies (default: all on the day's scoreboard) in each draw, and write trials.

    LakeError for a day that was not replayed, ConfigError for one replayed under another config and for a
    policy that is unknown, not replayed or plans in the replay, ValueError for too few or too many draws.
    """
    settings = with_learned_shares(settings, day)
    chosen = open_loop_policies(settings, day, policies)
    catalogues = sample_catalogues(
        settings.catalogue, profile_errors(settings), draws, settings.config.trace.seed
    )
    workload, schedules = read_workload(settings, day), policy_schedules(settings, day)
    sustained = planned_read_capacity(settings, day)
    strictest = settings.catalogue.strictest_tier(pc.unique(workload.requests["tier"]).to_pylist())
    labels = {"tier": strictest or ""}

    def trial(draw: int, catalogue: Catalogue, policy: str) -> ReplayTrial:
        drawn = replace(settings, catalogue=catalogue)
        fleet, rules = fleet_and_rules(drawn, policy)
        fleet = with_measured_capacity(
            drawn.under(policy), fleet, sustained * reactive_capacity_share(drawn.config, policy)
        )
        variant = Variant(policy, drawn, day, policy, labels=labels, draw=draw)
        return ReplayTrial(variant, fleet, rules, schedules[policy])

    trials = [trial(draw, drawn, name) for draw, drawn in enumerate(catalogues, start=1) for name in chosen]
    tables = [
        Variant(name, settings, day, name, labels=labels, draw=PROFILE_DRAW).rows(
            policy_metrics(settings.lake, name, trace=settings.trace, day=day)
        )
        for name in chosen
    ]
    tables += replay_trials(trials, len(trials), workload, f"replay {day} with latency errors", progress)
    write_trials(settings, "error", day, pa.concat_tables(tables))
    return settings.day_rows("error_draws", day)


def open_loop_policies(settings: RunSettings, day: date, policies: Sequence[str]) -> list[str]:
    """Return these policies (default: all) of those on the day's scoreboard that plan before the replay.

    Raises LakeError or ConfigError as `replay_latency_draws` does.
    """
    for policy in policies:
        require_known(policy, settings.config.rules, "policy", "fleetcast error")
    settings.require_day("outcomes", day)
    require_same_config(with_learned_shares(settings, day), day)
    query = "select distinct policy from scorecard where trace = $trace and day = $day"
    found = set(settings.lake.sql(query, trace=settings.trace, day=day)["policy"].to_pylist())
    rules = settings.config.rules
    open_loop = [name for name, rule in rules.items() if name in found and is_open_loop(rule)]
    for policy in policies:
        require_known(policy, open_loop, "policy with an open-loop plan", f"the scoreboard of {day}")
    return [name for name in open_loop if not policies or name in policies]


def is_open_loop(rule: PolicySpec) -> bool:
    """Whether a policy plans instances only, and before the replay."""
    return not rule.is_closed and rule.answers is None


def read_score_intervals(settings: RunSettings, day: date, board: pa.Table) -> list[dict[str, Any]]:
    """Return the mart scoreboard_intervals of a day if its draws belong to this scoreboard, else nothing.

    A nightly run that is repeated under another config leaves draws of a scoreboard that no longer exists.
    """
    found = settings.day_rows("scoreboard_intervals", day).to_pylist()
    scores = {row["policy"]: row for row in board.to_pylist()}
    shown = [row for policy in scores for row in found if row["policy"] == policy]
    is_current = all(is_same_figure(scores[row["policy"]].get(row["figure"]), row["value"]) for row in shown)
    return shown if is_current else []


def is_same_figure(figure: float | None, other: float) -> bool:
    """Whether two figures are equal, up to the order of their sums."""
    return figure is not None and math.isclose(figure, other, rel_tol=1e-9)


def draw_latency_error(settings: RunSettings, day: date) -> LakePath:
    """Draw cost against misses of the scoreboard, with the intervals from latency errors."""
    found = settings.day_rows("scoreboard_intervals", day).to_pandas()
    return save_day_figure(settings, day, "latency_error", lambda: draw_intervals(found))


def draw_intervals(found: pd.DataFrame) -> Figure:
    """Draw each policy as a point of cost and misses, with bars from low to high.

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
    """Return how far a plan's 90 % cost interval from latency errors reaches, as a share of its cost.

    `rows`: the plan's llm and usd. First-order estimate: an llm that is x % slower needs x % more instances.
    The worse of a profile's prefill and decode errors counts; errors of llms are independent, so the spread
    of the sum is smaller than the sum of spreads. Biases add. ConfigError for an llm that the config does not
    deploy.
    """
    worst: dict[str, ErrorLaw] = {}
    for error in profile_errors(settings):
        llm = error.profile.llm
        worst[llm] = max(error.worst, worst.get(llm, error.worst), key=ninety_reach)
    usd = dict.fromkeys(worst, 0.0)
    for row in rows:
        if row["llm"] not in usd:
            raise ConfigError(
                f"{settings.config.file.name} does not deploy {row['llm']}, which the plan has. Add it to "
                "[fleet.deployments], or make the plan again."
            )
        usd[row["llm"]] += row["usd"]
    spread = NINETY_SIGMAS * float(np.linalg.norm([usd[llm] * worst[llm].sigma for llm in worst]))
    shift = abs(sum(usd[llm] * worst[llm].bias for llm in worst))
    total = sum(usd.values())
    return (shift + spread) / total if total else 0.0
