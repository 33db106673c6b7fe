"""Draw the pictures of the pages anew, each from its runs: python tests/bench/pictures.py [NAME ...]

pictures.toml has the runs of each picture. They write into the lake of FLEETCAST_HOME, else of the checkout;
unseen_boards shows all boards that the lake has. All pictures take hours.

    python tests/bench/pictures.py --recorded [NAME ...]    draw from recorded rows, in seconds

picture_rows has what the pictures show of their runs. A picture is always drawn from these rows, and has
their digest. studies.csv, paper.csv, planner_board.csv and unseen_boards.csv have the values that pages and
earlier pictures print. A run records them anew. A value that is missing is drawn as –.
"""

import hashlib
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import wall_picture

from fleetcast.assets.demand.latency_panels import draw_latency, largest_llm
from fleetcast.assets.demand.paper_panels import draw_endpoints, draw_tiers, last_replay, select_last_week
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.figure_files import draw_and_save_figure
from fleetcast.assets.pages.figure_style import Figure
from fleetcast.assets.replays.replay_figures import draw_instances_against_demand
from fleetcast.assets.studies.foresight import draw_foresight
from fleetcast.assets.studies.planner_figures import draw_planners
from fleetcast.assets.studies.study_figures import draw_paper_points, draw_study_bars
from fleetcast.assets.studies.unseen_figures import draw_boards
from fleetcast.models.world.policies import REPLAY_POLICIES
from fleetcast.models.world.project_paths import HOME, ROOT

ROWS = Path(__file__).with_name("picture_rows")
PICTURES = ROOT / "data" / "pictures"
LISTED: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("pictures.toml").read_text(encoding="utf-8")
)
TIMES = ("time", "minute", "hour_start")
STUDY_METRICS = ("gpu_hours", "attainment_share", "ttft_p95_s")
STUDY_TIER = "iw_fast"
# Of the files of rows, in the order of pictures.toml. All other pictures are of studies.
DRAWINGS: Mapping[str, Callable[..., Figure]] = {
    "character_tiers": draw_tiers,
    "character_endpoints": draw_endpoints,
    "character_latency": lambda boxes, *others: draw_latency(
        boxes, *others, f"{boxes.at[0, 'day']}, {boxes.at[0, 'policy']}"
    ),
    "instances_against_demand": draw_instances_against_demand,
    "planner_board": draw_planners,
    "unseen_boards": draw_boards,
    "foresight": draw_foresight,
    "wall": wall_picture.draw_wall,
    "study_against_the_paper": draw_paper_points,
}


def draw_pictures(names: Sequence[str]) -> None:
    """Make the runs of some pictures, each run once, record what the pictures show, and draw them."""
    for run in dict.fromkeys(run for name in names for run in LISTED[name]["runs"]):
        program, *words = shlex.split(run)
        subprocess.run([Path(sys.executable).with_name(program), *words], cwd=ROOT, check=True)
    lake = Lake(HOME / "data" / "lake")
    for file in dict.fromkeys(file for name in names for file in LISTED[name]["rows"]):
        if file == "studies.csv":
            record_studies(lake, [name.removeprefix("study_") for name in names])
        elif file in READINGS:
            write_rows(file, READINGS[file](lake))
    draw_recorded(names)


def draw_recorded(names: Sequence[str]) -> None:
    """Draw pictures from their recorded rows."""
    for name in names:
        title, rows = LISTED[name]["title"], digest_rows(LISTED[name]["rows"])
        draw_and_save_figure(PICTURES / f"{name}.png", title, partial(draw_picture, name), Rows=rows)


def draw_picture(name: str) -> Figure:
    """Draw a picture from its recorded rows."""
    frames = [read_rows(file) for file in LISTED[name]["rows"]]
    if name in DRAWINGS:
        return DRAWINGS[name](*frames)
    [studies] = frames
    return draw_study_bars(studies[studies["study"] == name.removeprefix("study_")], STUDY_TIER)


def digest_rows(files: Sequence[str]) -> str:
    """Return the SHA-256 of files of rows, in their order."""
    return hashlib.sha256(b"".join((ROWS / file).read_bytes() for file in files)).hexdigest()


def read_rows(file: str) -> pd.DataFrame:
    """Read a file of rows; its times are instants."""
    path = ROWS / file
    frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    return frame.assign(**{name: pd.to_datetime(frame[name]) for name in TIMES if name in frame})


def write_rows(file: str, rows: pd.DataFrame) -> None:
    """Write a file of rows, with six digits."""
    if file.endswith(".parquet"):
        numbers = rows.select_dtypes("number").columns
        rows.astype(dict.fromkeys(numbers, "float32")).to_parquet(
            ROWS / file, compression="zstd", index=False
        )
    else:
        rows.to_csv(ROWS / file, index=False, float_format="%.6g")


def read_latency(lake: Lake, query: str, *left_out: str) -> pd.DataFrame:
    """Read a query of the last replayed day of sageserve, under the policy that characterise shows."""
    replay = last_replay(lake, "sageserve")
    assert replay is not None, "the run has replayed a day"
    rows = lake.sql(f"queries/{query}.sql", trace="sageserve", day=replay[0], policy=replay[1]).to_pandas()
    if "llm" in rows:
        rows = rows[rows["llm"] == largest_llm(rows["llm"].tolist())]
    return rows.drop(columns=["trace", *left_out])


def read_gpus(lake: Lake, trace: str, day: date) -> pd.DataFrame:
    """Read the GPUs of each policy and hour, in the order of the policies."""
    rows = lake.sql(
        "select policy, hour_start, sum(held_gpus) as held_gpus, sum(needed_gpus) as needed_gpus "
        "from fleet_by_hour where trace = $trace and day = $day group by all order by all",
        trace=trace, day=day,
    ).to_pandas()  # fmt: skip
    return rows.sort_values("policy", key=lambda names: names.map(list(REPLAY_POLICIES).index), kind="stable")


READINGS: Mapping[str, Callable[[Lake], pd.DataFrame]] = {
    "load.parquet": lambda lake: select_last_week(
        lake.sql("reads/load_panel.sql", trace="sageserve").to_pandas()
    ),
    "minutes.csv": lambda lake: lake.sql("reads/minutes_panel.sql", trace="sageserve").to_pandas(),
    "latency_boxes.csv": lambda lake: read_latency(lake, "latency_by_region"),
    "latency_minutes.csv": lambda lake: read_latency(lake, "peak_hour_latency", "day", "policy", "requests"),
    "latency_instances.csv": lambda lake: read_latency(
        lake, "peak_hour_instances", "day", "policy", "instances", "p95_tokens"
    ),
    "gpus.csv": lambda lake: read_gpus(lake, "office", date(2025, 7, 15)),
    "planner_board.csv": lambda lake: lake.sql(
        "select planner, total_usd, low_usd, high_usd, usd_error_share, required_ratio, failure_reason "
        "from planner_board where trace = 'together' order by total_usd"
    ).to_pandas(),
    "unseen_boards.csv": lambda lake: lake.sql(
        "select trace, policy, total_usd, days_on_target, is_ranked, knows_the_day from unseen_board "
        "order by all"
    ).to_pandas(),
    "foresight.csv": lambda lake: lake.sql(
        "select * exclude (day) from foresight order by trace desc, min_instances nulls first, boot_s, policy"
    ).to_pandas(),
    "paper.csv": lambda lake: lake.sql("queries/against_the_paper.sql").to_pandas()[
        [*pd.read_csv(ROWS / "paper.csv", nrows=0).columns]
    ],
}


def record_studies(lake: Lake, studies: Sequence[str]) -> None:
    """Replace the recorded rows of the studies that were run by those of the lake."""
    known = read_rows("studies.csv")
    ran = sorted({*studies} & {*known["study"]})
    rows = lake.sql(
        "select study, variant, policy, metric, tier, value from studies where list_contains($ran, study) "
        "and llm = 'all' and list_contains($metrics, metric) and tier in ('all', $tier)",
        ran=ran, metrics=list(STUDY_METRICS), tier=STUDY_TIER,
    ).to_pandas()  # fmt: skip
    write_rows("studies.csv", pd.concat([known[~known["study"].isin(ran)], rows]))


if __name__ == "__main__":
    is_recorded = sys.argv[1:2] == ["--recorded"]
    chosen = sys.argv[2:] if is_recorded else sys.argv[1:]
    (draw_recorded if is_recorded else draw_pictures)(chosen or list(LISTED))
