"""What if the latencies are off? The policies of a day in worlds that differ by the profiles' error.

In each draw all engines are somewhat faster or slower than their profiles say (models/latency/error.py), the
same for every policy, so that policies are compared in the same world. Plans, targets and the fleet at the
start stay as they are: they were made by the profiles, and that these are wrong shows only in the replay.
Policies that watch the fleet react to what they see.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from threading import Event
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from fleetcast.assets.lake.lookups import require_day
from fleetcast.assets.lake.settings import Counted, Progress, Settings, side_by_side
from fleetcast.assets.lake.store import Place
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.by_tier import attainment_of, tiers_on
from fleetcast.assets.pages.pictures import save
from fleetcast.assets.pages.style import FAINT
from fleetcast.assets.replays.drives import DAY_S, day_drives, measured, of_reflex, read_of_plans, setting
from fleetcast.assets.replays.figures import draw_cost_against_misses
from fleetcast.assets.replays.nights import require_same_config
from fleetcast.assets.replays.scorecards import score_day, scoreboard
from fleetcast.assets.replays.workloads import Workload, in_legs, read_workload
from fleetcast.assets.replays.writing import write_outcome
from fleetcast.models.latency.error import MEDIAN_SIGMAS, ProfileError, drawn, errors_in_use
from fleetcast.models.replay.inputs import Floats
from fleetcast.models.replay.run import Drive, replay
from fleetcast.models.world.policies import Policy
from fleetcast.models.world.reading import require_known

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWS = 12
AS_TOLD = 0  # the draw of the profiles themselves: the day's scoreboard
FIGURES = ("worst_llm_attainment_share", "missed_share", "ttft_p95_s", "gpu_hours", "usd")  # and of each tier
ENDS = ("value", "low", "high")
TWO_SIDED_90 = 1.645  # standard deviations
PLANNED_USD = """
select llm, sum(usd) as usd
from plans
where trace = $trace and day = $day and policy = 'corrected'
group by llm
"""
INTERVALS = "select * from scoreboard_intervals where trace = $trace and day = $day order by all"


def profile_errors(settings: Settings) -> list[ProfileError]:
    """The errors of the profiles that the config's fleet runs on."""
    return errors_in_use(settings.catalogue, settings.config.fleet.deployments.items())


def replay_draws(
    settings: Settings, day: date, policies: Sequence[str], draws: int, progress: Progress
) -> pa.Table:
    """Replay these policies, else all on the day's scoreboard, in so many draws; write `error_draws`.

    Raises
    ------
    LakeError
        The day has not been replayed.
    ConfigError
        It was, under another config; or a policy has no name, no replay, or plans anew in each world.
    ValueError
        Too few draws, or too many.
    """
    chosen = open_loop(settings, day, policies)
    worlds = drawn(settings.catalogue, profile_errors(settings), draws, settings.config.trace.seed)
    board = scoreboard(settings, day)
    workload = in_legs(settings, day, read_workload(settings, day))
    drives = day_drives(settings, day)
    sustained = read_of_plans(settings, day)
    boards = [_figures(board.filter(pc.is_in(board["policy"], pa.array(chosen, pa.string()))), AS_TOLD)]
    with progress.bar(f"replay {day} on other latencies", draws * len(chosen)) as done:
        counted = Counted(done)
        for draw, world in enumerate(worlds, start=1):
            own = replace(settings, catalogue=world)
            boards.append(_figures(_play(own, day, chosen, workload, drives, sustained, counted), draw))
    table = pa.Table.from_pandas(pd.concat(boards), preserve_index=False)
    settings.lake.write("error_draws", table, trace=settings.trace, day=day)
    return table


def open_loop(settings: Settings, day: date, policies: Sequence[str]) -> list[str]:
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


def is_open_loop(rule: Policy) -> bool:
    """Whether what it plans is instances alone, before the replay."""
    return not rule.is_closed and rule.answers is None


def _play(
    settings: Settings,
    day: date,
    policies: Sequence[str],
    workload: Workload,
    drives: dict[str, Drive],
    sustained: Floats,
    counted: Counted,
) -> pa.Table:
    """The scoreboard of one draw, in a lake that is thrown away."""
    stopped = Event()
    with settings.lake.scratch() as folder:
        own = replace(settings, lake=Lake(folder))

        def step(_: int) -> None:
            if stopped.is_set():
                raise KeyboardInterrupt

        def one(policy: str) -> None:
            fleet, rules = setting(own, policy)
            fleet = measured(own.under(policy), fleet, sustained * of_reflex(own, policy))
            outcome = replay(workload.trace, fleet, drives[policy], rules, DAY_S, step)
            write_outcome(own, day, policy, workload, (fleet, rules), outcome)
            counted.one_more()

        side_by_side(one, policies, stopped.set)
        score_day(own, day)
        return scoreboard(own, day)


def _figures(board: pa.Table, draw: int) -> pd.DataFrame:
    """A scoreboard as rows (policy, draw, figure, value); figures that it lacks are left out."""
    long = board.to_pandas().melt("policy", figures_on(board), "figure", "value").dropna()
    return long.assign(draw=draw, value=long["value"].astype(float))


def figures_on(board: pa.Table) -> list[str]:
    """The figures of a scoreboard whose error is measured."""
    return [*map(attainment_of, tiers_on(board)), *FIGURES]


def intervals(settings: Settings, day: date, board: pa.Table) -> list[dict[str, Any]]:
    """The mart scoreboard_intervals of a day, if its draws are of this very scoreboard; else nothing.

    A night that is made again under another config leaves draws of a board that is no more.
    """
    found = settings.lake.sql(INTERVALS, trace=settings.trace, day=day).to_pylist()
    of_policy = {row["policy"]: row for row in board.to_pylist()}
    shown = [row for policy in of_policy for row in found if row["policy"] == policy]
    is_of_it = all(of_policy[row["policy"]][row["figure"]] == row["value"] for row in shown)
    return shown if is_of_it else []


def differences(settings: Settings, day: date) -> list[dict[str, Any]]:
    """The mart scoreboard_differences of a day: every two policies, figure by figure."""
    query = "select * from scoreboard_differences where trace = $trace and day = $day order by all"
    return settings.lake.sql(query, trace=settings.trace, day=day).to_pylist()


def draw(settings: Settings, day: date) -> Place:
    """The scoreboard's cost against misses, with what the error of the latencies does to both."""
    found = settings.lake.sql(INTERVALS, trace=settings.trace, day=day).to_pandas()
    return save(settings, day, "latency_error", lambda: draw_intervals(found))


def draw_intervals(found: pd.DataFrame) -> "Figure":
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


def usd_error_share(settings: Settings, rows: Sequence[Mapping[str, Any]]) -> float:
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
