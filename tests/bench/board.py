"""Plans and boards on made traffic: what a policy costs and attains there, compared with the trace that it
is like.

python tests/bench/board.py [MECHANISM ...]    what goes with each mechanism of the generator, or some

Every day of a fortnight is planned and replayed. Its first week has the second one as its history, so that no
day of the original is left out of the comparison.
"""

import dataclasses
import itertools
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from made import land_servegen
from measure import SHARED, Figures, Skipped, Target

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.demand.fit_trace_clients import fit_clients
from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.plans.plans import plan_day
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import read_scoreboard, score_day
from fleetcast.assets.traces.request_days import canonical_requests, write_tiers
from fleetcast.models.traffic.app_levels import LevelProcess, draw_level_stretch
from fleetcast.models.traffic.clients import ClientTraffic, client_day
from fleetcast.models.traffic.trace_changes import TraceChanges
from fleetcast.models.traffic.trace_columns import TraceNames
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.config_loading import load_config

LLM, GPU, REGION = "bloom-176b", "a100-80gb", "east"
POLICIES = ("static", "reactive", "lt_ua", "corrected", "day_ahead", "clairvoyant")
FIRST = date(2024, 1, 1)
DAYS, HISTORY = 14, 7  # the days before the first are copies of the last ones: no day is without history
RATE_SCALE = 3e-3  # 4.3 million requests, which keep some five instances busy
SEEDS = 3
WEEKS = 8  # over which levels are averaged
TIED = 0.03  # costs that differ by less are in no order
TARGETS = {
    "generate_board_gap": Target(
        "", "GPU-hours on ServeGen and on traces made like it: worst policy, median of 3 seeds", at_most=0.03
    ),
    **{
        f"generate_board_gap_{policy}": Target("", f"made over original, less one: {policy}")
        for policy in POLICIES
    },
    "generate_board_attainment_gap": Target("", "the same: iw_fast attainment, worst policy"),
    "generate_board_order": Target("", "pairs of policies that cost in the same order"),
}
FLEET = f"""
[fleet]
instances_at_start = 4
min_instances = 1
[fleet.deployments]
{LLM} = {{ gpu = "{GPU}", tensor_parallel = 8 }}
"""
CONFIG = f"""
based_on = "sageserve"
[trace]
name = "NAME"
first_day = {FIRST - timedelta(days=HISTORY)}
days = {HISTORY + DAYS}
seed = 7
{FLEET}
[forecast]
history_days = {HISTORY}
paper_method = "seasonal_level"
methods = ["seasonal_level", "weighted"]
[replay]
policies = {list(POLICIES)}
"""


def catalogue() -> Catalogue:
    """The shipped one, of one llm in one region."""
    whole = load_catalogue().of_era("2023", "here")
    site = dataclasses.replace(
        whole.regions[REGION],
        preference=(REGION,),
        network_s={REGION: 0.0},
        cap_gpus={GPU: 400},
        weights=(LLM,),
    )
    return dataclasses.replace(whole, llms={LLM: whole.llms[LLM]}, regions={REGION: site})


def boards() -> Figures:
    """A fortnight of ServeGen and traces made like it: GPU-hours, attainment and the order of policies."""
    if not SHARED.exists():
        raise Skipped("the shared traces are not next to this checkout (../shared/data)")
    with tempfile.TemporaryDirectory() as folder:
        (lake, original), fitted = landed(Path(folder))
        found = [made_board(lake, *fitted, seed) for seed in range(SEEDS)]
    cost, attained = (
        pd.DataFrame(list(rows)).reset_index(drop=True)
        for rows in (
            (one["gpu_hours"] / original["gpu_hours"] - 1 for one in found),
            (one["attainment"] - original["attainment"] for one in found),
        )
    )
    order = [in_order(original["gpu_hours"], one["gpu_hours"]) for one in found]
    print(pd.concat({"gpu_hours": cost, "attainment": attained}, axis=1).T.round(3).to_string())
    median = cost.median()
    return {
        "generate_board_gap": float(median.abs().max()),
        **{f"generate_board_gap_{policy}": float(median[policy]) for policy in POLICIES},
        "generate_board_attainment_gap": float(attained.median().abs().max()),
        "generate_board_order": float(np.median(order)),
    }


Fitted = tuple[ClientTraffic, list[str]]


def landed(folder: Path) -> tuple[tuple[Lake, pd.Series], Fitted]:
    """A lake with the original, its board, and what is fitted to it."""
    lake = Lake(folder / "lake")
    mapping = f'region = "{REGION}"\nllm = "{LLM}"\ntier = {{ iw_fast = 0.72, niw = 0.28 }}\n'
    land_servegen(lake, folder, RATE_SCALE, mapping)
    fitted = fit_clients(lake, "servegen", TraceNames.of(catalogue()), Progress())
    return (lake, board(lake, "servegen")), fitted


def made_board(lake: Lake, traffic: ClientTraffic, apps: Sequence[str], seed: int) -> pd.DataFrame:
    """The board of a trace that is made with a seed."""
    return board(lake, made(lake, traffic, apps, seed))


def in_order(before: pd.Series, after: pd.Series) -> float:
    """Share of the pairs of policies that cost in the same order; those within TIED of each other in both
    count as such."""
    pairs = list(itertools.combinations(POLICIES, 2))
    signs = [
        [0 if abs(of[a] / of[b] - 1) < TIED else np.sign(of[a] - of[b]) for a, b in pairs]
        for of in (before, after)
    ]
    return float(np.mean([x * y >= 0 for x, y in zip(*signs, strict=True)]))


def settings_of(lake: Lake, trace: str) -> RunSettings:
    known = catalogue()
    path = lake.root.parent / f"{trace}.toml"
    path.write_text(CONFIG.replace("NAME", trace).replace("'", '"'), encoding="utf-8")
    return RunSettings(lake, known, load_config(str(path), known))


def board(lake: Lake, trace: str) -> pd.DataFrame:
    """GPU-hours and attainment by policy over all days."""
    settings = settings_of(lake, trace)
    for back in range(1, HISTORY + 1):
        last, before = FIRST + timedelta(days=DAYS - back), FIRST - timedelta(days=back)
        rows = lake.read("requests", trace=trace, day=last).drop_columns(["trace", "day"])
        at = rows.column_names.index("arrived_at")
        earlier = pc.subtract(rows["arrived_at"], pa.scalar(timedelta(days=DAYS)))
        lake.write("requests", rows.set_column(at, "arrived_at", earlier), trace=trace, day=before)
    for day in lake.days("requests", trace):
        build_demand(lake, trace, day)
    boards = []
    for day in (FIRST + timedelta(days=n) for n in range(DAYS)):
        forecast_day(settings, day, Progress())
        plan_day(settings, day, Progress())
        replay_day(settings, day, POLICIES, Progress())
        score_day(settings, day)
        boards.append(read_scoreboard(settings, day).to_pandas())
    every = pd.concat(boards)
    every["gpu_hours"] += every["backlog_gpu_hours"]
    found = every.groupby("policy").agg(
        gpu_hours=("gpu_hours", "sum"), attainment=("attainment_share", "mean")
    )
    return found.loc[list(POLICIES)]


def made(lake: Lake, traffic: ClientTraffic, apps: Sequence[str], seed: int) -> str:
    """Write two weeks of traffic into the lake; the name of their trace."""
    known, trace = catalogue(), f"made_{seed}"
    write_tiers(lake, trace, known)
    for day in (FIRST + timedelta(days=n) for n in range(DAYS)):
        columns = client_day(traffic, TraceChanges(), day, FIRST, seed, TraceNames.of(known))
        lake.write(
            "requests", canonical_requests(columns, day, "made", known, list(apps)), trace=trace, day=day
        )
    return trace


def always_awake(traffic: ClientTraffic) -> ClientTraffic:
    """What sleep took away is spread over all hours."""
    awake, level = traffic.levels.awake, traffic.levels.level
    share = awake.quantiles.mean(axis=1, keepdims=True)
    return dataclasses.replace(
        traffic,
        levels=dataclasses.replace(
            traffic.levels,
            awake=dataclasses.replace(awake, quantiles=np.ones_like(awake.quantiles)),
            level=dataclasses.replace(level, quantiles=level.quantiles * share),
        ),
    )


def forgetful(traffic: ClientTraffic) -> ClientTraffic:
    """Levels keep what they are by hour of the week and lose what they were an hour ago."""

    def of(process: LevelProcess) -> LevelProcess:
        nothing = np.zeros_like(process.slow_share)
        return dataclasses.replace(process, slow_share=nothing, fast_hours=nothing + 0.05)

    return dataclasses.replace(
        traffic,
        levels=dataclasses.replace(
            traffic.levels, awake=of(traffic.levels.awake), level=of(traffic.levels.level)
        ),
    )


def without_days(traffic: ClientTraffic) -> ClientTraffic:
    """Tokens of any time, gaps of the mean day: nothing drifts."""
    history = traffic.history
    mean = np.broadcast_to(history.gap_cv.mean(axis=1, keepdims=True), history.gap_cv.shape)
    everywhere = np.zeros_like(history.pair_hour)  # no hour is seen: all pairs are drawn from
    return dataclasses.replace(traffic, history=history._replace(gap_cv=mean, pair_hour=everywhere))


def evenly(traffic: ClientTraffic) -> ClientTraffic:
    """A Poisson process: no batch, no clump."""
    spacing = traffic.spacing
    spacing = spacing._replace(batch_share=np.zeros_like(spacing.batch_share))
    return dataclasses.replace(
        traffic,
        spacing=spacing,
        history=traffic.history._replace(gap_cv=np.ones_like(traffic.history.gap_cv)),
    )


def without_noise(traffic: ClientTraffic) -> ClientTraffic:
    """No noise by the minute and the day that clients share."""
    noise = traffic.noise
    return dataclasses.replace(
        traffic, noise=noise._replace(daily_share=0 * noise.daily_share, minute_share=0 * noise.minute_share)
    )


def by_the_week(traffic: ClientTraffic) -> ClientTraffic:
    """No level: every client has the mean rate of each hour of its week."""
    weeks = [
        np.concatenate(
            [
                draw_level_stretch(traffic.levels, 7, FIRST + timedelta(days=n), FIRST, n % 7).day_levels()
                for n in range(7 * w, 7 * w + 7)
            ],
            axis=1,
        )
        for w in range(WEEKS)
    ]
    led = traffic.level >= 0
    rates = traffic.requests_per_hour.copy()
    rates[led] *= np.mean(weeks, axis=0)[traffic.level[led]]
    return dataclasses.replace(traffic, requests_per_hour=rates, level=np.full_like(traffic.level, -1))


MECHANISMS: dict[str, Callable[[ClientTraffic], ClientTraffic]] = {
    "sleep": always_awake,
    "memory": forgetful,
    "levels": by_the_week,
    "drift": without_days,
    "bursts": evenly,
    "noise": without_noise,
}


def without(mechanisms: Sequence[str]) -> None:
    """Print what GPU-hours a trace made without each mechanism has over those of the original."""
    with tempfile.TemporaryDirectory() as folder:
        (lake, original), (traffic, apps) = landed(Path(folder))
        for name in ("", *mechanisms):
            changed = MECHANISMS[name](traffic) if name else traffic
            for seed in range(SEEDS):
                found = made_board(lake, changed, apps, seed)
                gap = (found["gpu_hours"] / original["gpu_hours"] - 1).round(3)
                met = (found["attainment"] - original["attainment"]).round(3)
                print(f"without {name or 'nothing'}, seed {seed}:", gap.to_dict(), met.to_dict(), flush=True)


FUNCTIONS = (boards,)

if __name__ == "__main__":
    without(sys.argv[1:] or list(MECHANISMS))
