"""The planners' board: five published systems and fleetcast, where all attain the same.

    python tests/bench planners

Each config is made from nothing, or a real trace is landed; then it is forecast, planned and searched as
`fleetcast board` does.
"""

import tempfile
from pathlib import Path

from board import FIRST, FLEET, LLM, REGION, catalogue
from made import OTHERS as REAL
from made import land_servegen
from measure import SHARED, Figures, Skipped, Target
from small import make_plans

from fleetcast.assets.lake.settings import Progress, RunSettings, build_settings, load_settings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies import planner_board
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.world.config_loading import load_config

OTHERS = ("sageserve", "llumnix_hourly", "cauchy_types", "cascadia_hourly", "boute_hourly")
CONFIGS = {
    "": "together",
    "_office": "sageserve",
    "_bursts": "sageserve_bursts",
    "_azure": "azure: a real hour by the hours of a real week",
    "_servegen": "ServeGen m-small: a real Friday after eleven real days",
}
SERVEGEN_RATE = 1e-2  # of its 1.4 billion requests: a million a day
SERVEGEN = f"""
based_on = "sageserve"
[trace]
name = "servegen"
first_day = {FIRST}
days = 12
seed = 7
{FLEET}"""
SERVEGEN_MAPPING = f"""
region = "{REGION}"
llm = "{LLM}"
tier = {{ iw_fast = 0.72, niw = 0.28 }}
"""
TARGETS = {
    f"{key}{name}": target
    for name, config in CONFIGS.items()
    for key, target in {
        "board_systems": Target("", f"published planners that attain what {config} asks", at_least=5),
        "board_required_ratio": Target("", f"{config}: of every target, what is required of all"),
        "fleetcast_over_best_usd": Target(
            "", f"{config}: USD of ours over the cheapest of them", at_most=1.0
        ),
        "fleetcast_resolution_share": Target(
            "", f"{config}: how far apart the trials lie, the worse of the two"
        ),
    }.items()
}


def of_settings(settings: RunSettings, name: str) -> Figures:
    """The board of a planned day; where fleetcast alone attains the targets, at the most that another
    does.
    """
    day = settings.config.trace.replay_day
    planner_board.try_planners(settings, day, (), False, Progress())
    trials = settings.lake.sql("from planner_trials").to_pandas()
    board = planner_board.read_planner_board(settings, day).to_pandas().set_index("planner")
    print(board[["total_usd", "attained_ratio", "best_ratio", "noise_share", "failure_reason"]].to_string())
    print(f"fleetcast: {board.loc['fleetcast', 'what']}")
    required = min(float(board["required_ratio"].min()), float(board.loc[list(OTHERS), "best_ratio"].max()))
    trials["total_usd"] = trials["usd"] + trials["backlog_usd"]
    is_good = (trials["quality"] >= trials["required_quality"]) | trials["required_quality"].isna()
    usd = trials[(trials["attained_ratio"] >= required) & is_good].groupby("planner")["total_usd"].min()
    apart, best = board["noise_share"].fillna(0.0), str(usd.drop("fleetcast").idxmin())
    return {
        f"board_systems{name}": int(board.loc[list(OTHERS), "total_usd"].notna().sum()),
        f"board_required_ratio{name}": required,
        f"fleetcast_over_best_usd{name}": float(usd["fleetcast"] / usd[best]),
        f"fleetcast_resolution_share{name}": float(max(apart["fleetcast"], apart[best])),
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
            ingest_file(SHARED / "traces" / file, settings.lake, settings.catalogue)
        make_plans(settings, settings.config.trace.replay_day)
        return of_settings(settings, "_azure")


def servegen() -> Figures:
    """What clients really sent, thinned, to one llm in one region; nothing but counts is to be decided."""
    require_shared()
    with tempfile.TemporaryDirectory() as name:
        folder, known = Path(name), catalogue()
        (folder / "mine.toml").write_text(SERVEGEN)
        settings = build_settings(Lake(folder / "lake"), known, load_config(str(folder / "mine.toml"), known))
        land_servegen(settings.lake, folder, SERVEGEN_RATE, SERVEGEN_MAPPING)
        make_plans(settings, settings.config.trace.replay_day)
        return of_settings(settings, "_servegen")


def require_shared() -> None:
    """Skip where the shared traces are away."""
    if not SHARED.exists():
        raise Skipped("the shared traces are not next to this checkout (../shared/data)")


FUNCTIONS = (together, office, bursts, azure, servegen)
