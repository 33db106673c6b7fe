"""A lake after many nights: files, size, and how much CPU a query of the scoreboard takes.

A small night of release 0.1.0 (tests/lakes) stands under so many days, by hard links: what grows is the
number of files, not the rows of a night.
"""

import tempfile
from itertools import pairwise
from pathlib import Path

from earlier_lake import NIGHT, drop_on_demand, lake_mb, link_nights, unpack_lake
from measure import Figures, Target, cpu_seconds

from fleetcast.assets.lake.retention import tidy_lake
from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.scoreboards import write_scoreboards
from fleetcast.assets.lake.warehouse import Lake

NIGHTS = (1, 50, 100, 200, 400)
KEPT = 30  # nights whose requests stay
REPEATS = 2
QUERY = f"from scoreboard where day = date '{NIGHT}'"
OF_ALL = "from scoreboard"
TARGETS = {
    "nights_until_twice": Target(
        "nights",
        "in a lake until the scoreboard of one day takes twice the CPU of a lake of one night",
        at_least=400,
    ),
    "nights_files": Target("", "Parquet files of the lake with the most nights"),
    "nights_mb": Target("MB", "their size"),
    "nights_query_seconds": Target("s", "scoreboard of one day, in that lake; CPU of all cores"),
    "nights_query_one_seconds": Target("s", "the same in a lake of one night"),
    "nights_all_seconds": Target("s", "scoreboard of all days, in that lake; CPU"),
    "nights_tidied_files": Target("", f"Parquet files of that lake after `tidy --keep-days {KEPT}`"),
    "nights_tidied_seconds": Target("s", "scoreboard of one day, in that lake; CPU"),
}


def nights() -> Figures:
    """Link a night under more and more days; time a query of one day, and of all."""
    seconds: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        lake = unpack_lake(Path(folder))
        drop_on_demand(lake)
        write_scoreboards(lake)  # the release that scored this night did not
        for count in NIGHTS:
            link_nights(lake, count)
            seconds[count] = cpu_seconds(lambda: lake.sql(QUERY), REPEATS)
            print(
                f"{count} nights: {files_of(lake)} files, {lake_mb(lake):.1f} MB, {seconds[count]:.3f} CPU-s",
                flush=True,
            )
        figures = {
            "nights_files": files_of(lake),
            "nights_mb": lake_mb(lake),
            "nights_query_seconds": seconds[NIGHTS[-1]],
            "nights_query_one_seconds": seconds[NIGHTS[0]],
            "nights_all_seconds": cpu_seconds(lambda: lake.sql(OF_ALL)),
        }
        tidy_lake(lake, KEPT)
        last = f"from scoreboard where day = date '{lake.days('outcomes', 'upgrade')[-1]}'"
        tidied = {"nights_tidied_files": files_of(lake)}
        tidied["nights_tidied_seconds"] = cpu_seconds(lambda: lake.sql(last), REPEATS)
    return {"nights_until_twice": nights_until_twice(seconds), **figures, **tidied}


def files_of(lake: Lake) -> int:
    """How many Parquet files the lake has."""
    return sum(len(lake.files(table)) for table in PARTITIONS)


def nights_until_twice(seconds: dict[int, float]) -> float:
    """Where the line through the measured points passes twice the first; the last count if it does not."""
    counts, limit = list(seconds), 2 * seconds[min(seconds)]
    for low, high in pairwise(counts):
        if seconds[high] > limit:
            share = (limit - seconds[low]) / (seconds[high] - seconds[low])
            return low + share * (high - low)
    return counts[-1]


FUNCTIONS = (nights,)
SMOKE = {"nights": {"NIGHTS": (1, 3), "REPEATS": 1, "KEPT": 2}}
