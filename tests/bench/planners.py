"""The planners' board: five published systems and ours, where all attain the same.

    python tests/bench planners

Each config is made from nothing, or its real trace is landed; then it is forecast, planned and searched as
`fleetcast board` does.
"""

import tempfile
from pathlib import Path

from made import OTHERS as REAL
from made import land_servegen
from measure import SHARED, Figures, Skipped, Target
from small import make_plans

from assets.demand.demand import build_demand
from assets.forecasts.forecasts import forecast_day
from assets.lake.settings import Progress, Settings, load_settings
from assets.plans.plans import plan_day
from assets.studies import planner_board
from assets.traces.ingest import ingest

OTHERS = ("sageserve", "llumnix_hourly", "cauchy_types", "cascadia_hourly", "boute_hourly")
CONFIGS = {
    "": "together",
    "_office": "office",
    "_bursts": "office_bursts",
    "_azure": "azure: a real hour by the hours of a real week",
    "_servegen": "two weeks of ServeGen's m-small",
}
TARGETS = {
    f"{key}{name}": target
    for name, config in CONFIGS.items()
    for key, target in {
        "board_systems": Target("", f"published planners that attain what {config} asks", at_least=5),
        "board_asked_ratio": Target("", f"{config}: of every target, what is asked of all"),
        "ours_over_best_usd": Target("", f"{config}: USD of ours over the cheapest of them", at_most=1.0),
        "ours_resolution_share": Target("", f"{config}: how far apart the trials lie, the worse of the two"),
    }.items()
}
RATE_SCALE = 1e-2  # 14 million requests, which keep some fifteen instances busy
SERVEGEN = """
based_on = "office"
[trace]
name = "servegen"
first_day = 2024-01-01
days = 13
seed = 7
[forecast]
method = "weighted"
paper_method = "weighted"
methods = ["weighted"]
history_days = 12
"""


def of_settings(settings: Settings, name: str) -> Figures:
    """The board of a planned day."""
    day = settings.config.trace.replay_day
    planner_board.try_planners(settings, day, (), False, Progress())
    board = planner_board.board(settings, day).to_pandas().set_index("planner")
    print(board[["total_usd", "attained_ratio", "best_ratio", "apart_share", "why_not"]].to_string())
    usd, apart = board["total_usd"], board["apart_share"].fillna(0.0)
    best = str(usd[list(OTHERS)].idxmin())
    return {
        f"board_systems{name}": int(usd[list(OTHERS)].notna().sum()),
        f"board_asked_ratio{name}": float(board["asked_ratio"].min()),
        f"ours_over_best_usd{name}": float(usd["ours"] / usd[best]),
        f"ours_resolution_share{name}": float(max(apart["ours"], apart[best])),
    }


def of_config(name: str) -> Figures:
    """The board of a config's last day, its requests made."""
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(CONFIGS[name], Path(folder, "lake"))
        make_plans(settings, settings.config.trace.replay_day)
        return of_settings(settings, name)


def together() -> Figures:
    """Three llms, three GPU types, two regions, a service that either of two llms may answer."""
    return of_config("")


def office() -> Figures:
    """The default run; nothing but counts is to be decided."""
    return of_config("_office")


def bursts() -> Figures:
    """The office with three bursts of eight times its load, one of them more than the fleet can take."""
    return of_config("_bursts")


def azure() -> Figures:
    """The Azure hour of 2023, repeated by the hours of that of 2024."""
    require_shared()
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings("azure", Path(folder, "lake"))
        for file in REAL["azure_llm"]:
            ingest(SHARED / "traces" / file, settings.lake, settings.catalogue)
        make_plans(settings, settings.config.trace.replay_day)
        return of_settings(settings, "_azure")


def servegen() -> Figures:
    """ServeGen's m-small, a Saturday after twelve days."""
    require_shared()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "servegen.config.toml")
        path.write_text(SERVEGEN, encoding="utf-8")
        settings = load_settings(str(path), Path(folder, "lake"))
        mapping = 'region = "east"\nllm = "bloom-176b"\ntier = { iw_fast = 0.72, niw = 0.28 }\n'
        land_servegen(settings.lake, Path(folder), RATE_SCALE, mapping)
        day = settings.config.trace.replay_day
        for one in (*settings.history(day), day):
            build_demand(settings.lake, settings.trace, one)
        forecast_day(settings, day, Progress())
        plan_day(settings, day, Progress())
        return of_settings(settings, "_servegen")


def require_shared() -> None:
    """Skip where the shared traces are away."""
    if not SHARED.exists():
        raise Skipped("the shared traces are not beside this checkout (../shared/data)")


FUNCTIONS = (together, office, bursts, azure, servegen)
