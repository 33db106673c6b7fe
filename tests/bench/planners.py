"""The planners' board: five published systems and ours, where all attain the same.

    python tests/bench planners

Each config is made from nothing, forecast, planned and searched as `fleetcast board` does.
"""

import tempfile
from pathlib import Path

from measure import Figures, Target
from small import make_plans

from assets.lake.settings import Progress, load_settings
from assets.studies import planner_board

OTHERS = ("sageserve", "llumnix_hourly", "cauchy_types", "cascadia_hourly", "boute_hourly")
CONFIGS = {"": "together", "_bursts": "office_bursts"}
TARGETS = {
    f"{key}{name}": target
    for name, config in CONFIGS.items()
    for key, target in {
        "board_systems": Target("", f"published planners that attain what {config} asks", at_least=5),
        "ours_over_best_usd": Target("", f"{config}: USD of ours over the cheapest of them", at_most=1.0),
        "ours_resolution_share": Target("", f"{config}: how far apart the trials lie, the worse of the two"),
    }.items()
}


def of_config(name: str) -> Figures:
    """The board of a config's last day."""
    with tempfile.TemporaryDirectory() as folder:
        settings, quiet = load_settings(CONFIGS[name], Path(folder, "lake")), Progress()
        day = settings.config.trace.replay_day
        make_plans(settings, day)
        planner_board.try_planners(settings, day, (), False, quiet)
        board = planner_board.board(settings, day).to_pandas().set_index("planner")
    usd, apart = board["total_usd"], board["apart_share"].fillna(0.0)
    best = str(usd[list(OTHERS)].idxmin())
    return {
        f"board_systems{name}": int(usd[list(OTHERS)].notna().sum()),
        f"ours_over_best_usd{name}": float(usd["ours"] / usd[best]),
        f"ours_resolution_share{name}": float(max(apart["ours"], apart[best])),
    }


def together() -> Figures:
    """Three llms, three GPU types, two regions, a service that either of two llms may answer."""
    return of_config("")


def bursts() -> Figures:
    """The office with three bursts of eight times its load; nothing but counts is to be decided."""
    return of_config("_bursts")


FUNCTIONS = (together, bursts)
