"""Draw the pictures of the pages anew, each from its runs: python tests/bench/pictures.py [NAME ...]

pictures.toml has the runs of each picture. They write into the lake of FLEETCAST_HOME, else of the checkout;
unseen_boards shows all boards that the lake has. All pictures take hours.
"""

import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from fleetcast.models.world.project_paths import HOME, ROOT

LIST = Path(__file__).with_name("pictures.toml")
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


if __name__ == "__main__":
    draw_pictures(sys.argv[1:])
