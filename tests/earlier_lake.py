"""The lake that release 0.1.0 wrote (tests/lakes/make.py), and copies of its night under more days."""

import shutil
import tarfile
from datetime import date, timedelta
from pathlib import Path

from fleetcast.assets.lake import store
from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.warehouse import Lake

ARCHIVE = Path(__file__).resolve().parent / "lakes" / "0.1.0.tar.gz"
TRACE, NIGHT = "upgrade", date(2025, 7, 3)
POLICIES = 2


def unpack_lake(folder: Path) -> Lake:
    """The lake in FOLDER/lake, and its config in FOLDER/upgrade.toml."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return Lake(folder / "lake")


def link_nights(lake: Lake, count: int) -> None:
    """Link each file of the night under the next `count` - 1 days too."""
    for table in (name for name, keys in PARTITIONS.items() if keys[:2] == ("trace", "day")):
        for path in lake.files(table, trace=TRACE, day=NIGHT):
            for n in range(1, count):
                name = lake.below(path).replace(f"day={NIGHT}", f"day={NIGHT + timedelta(days=n)}")
                if not (lake.root / name).exists():
                    store.link_or_copy(path, lake.root / name)


def lake_mb(lake: Lake) -> float:
    """The size of the tables' files, each counted as often as it is there, in MB."""
    return sum(path.stat().st_size for table in PARTITIONS for path in lake.files(table)) / 1e6


def drop_on_demand(lake: Lake) -> None:
    """Remove the tables of other commands, whose columns have other names since."""
    for table in ("gpu_prices", "gpu_fleets", "level_trials", "quality_pools", "quality_plans"):
        shutil.rmtree(lake.root / table, ignore_errors=True)
