"""Draw the pictures of the pages anew, each from its runs: python tests/bench/pictures.py [NAME ...]

pictures.toml has the runs of each picture. They write into the lake of FLEETCAST_HOME, else of the checkout;
unseen_boards shows all boards that the lake has. All pictures take hours.

    python tests/bench/pictures.py --recorded    draw the studies from recorded rows, in seconds

study_rows.csv has rows of the mart studies, paper_rows.csv of queries/against_the_paper.sql, as
data/studies/README.md and earlier pictures print them. A run of a study of a picture records its rows anew.
A value that is missing is drawn as –.
"""

import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.figure_files import draw_and_save_figure
from fleetcast.assets.studies.study_figures import draw_paper_points, draw_study_bars
from fleetcast.models.world.project_paths import HOME, ROOT

LIST = Path(__file__).with_name("pictures.toml")
STUDY_ROWS, PAPER_ROWS = (Path(__file__).with_name(f"{name}_rows.csv") for name in ("study", "paper"))
STUDY_METRICS = ("gpu_hours", "attainment_share", "ttft_p95_s")
STUDY_TIER = "iw_fast"
PICTURES, FIGURES = ROOT / "data" / "pictures", HOME / "data" / "figures"


def draw_pictures(names: Sequence[str]) -> None:
    """Make the runs of some pictures, of all without a name, each run once, and take the files."""
    pictures = tomllib.loads(LIST.read_text(encoding="utf-8"))
    chosen = {name: pictures[name] for name in names or pictures}
    for run in dict.fromkeys(run for picture in chosen.values() for run in picture["runs"]):
        program, *words = shlex.split(run)
        subprocess.run([Path(sys.executable).with_name(program), *words], cwd=ROOT, check=True)
    for name, picture in chosen.items():
        shutil.copyfile(FIGURES / picture["drawn"], PICTURES / f"{name}.png")
    record_studies(Lake(HOME / "data" / "lake"), [name.removeprefix("study_") for name in chosen])


def record_studies(lake: Lake, names: Sequence[str]) -> None:
    """Replace the recorded rows of the studies that were drawn by those of the lake."""
    known = pd.read_csv(STUDY_ROWS)
    drawn = sorted({*names} & {*known["study"]})
    rows = lake.sql(
        "select study, variant, policy, metric, tier, value from studies where list_contains($drawn, study) "
        "and llm = 'all' and list_contains($metrics, metric) and tier in ('all', $tier)",
        drawn=drawn, metrics=list(STUDY_METRICS), tier=STUDY_TIER,
    ).to_pandas()  # fmt: skip
    pd.concat([known[~known["study"].isin(drawn)], rows]).to_csv(STUDY_ROWS, index=False)
    if "against_the_paper" in names:
        columns = pd.read_csv(PAPER_ROWS, nrows=0).columns
        lake.sql("queries/against_the_paper.sql").to_pandas()[columns].to_csv(PAPER_ROWS, index=False)


def draw_recorded_studies() -> None:
    """Draw each study of the recorded rows, and the values of the paper."""
    for study, rows in pd.read_csv(STUDY_ROWS).groupby("study"):
        path = PICTURES / f"study_{study}.png"
        draw_and_save_figure(path, str(study), lambda: draw_study_bars(rows, STUDY_TIER))  # noqa: B023
    paper = pd.read_csv(PAPER_ROWS)
    path = PICTURES / "study_against_the_paper.png"
    draw_and_save_figure(path, "one point per value of a paper", lambda: draw_paper_points(paper))


if __name__ == "__main__":
    if sys.argv[1:] == ["--recorded"]:
        draw_recorded_studies()
    else:
        draw_pictures(sys.argv[1:])
