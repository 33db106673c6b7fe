"""Remove what old days have in a row per request, and keep their scorecards and scoreboards."""

from typing import NamedTuple

from fleetcast.assets.lake.file_digests import digest_path, digested_files
from fleetcast.assets.lake.scoreboards import write_scoreboards
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.warehouse import Lake

PER_REQUEST_TABLES = ("outcomes", "legs")  # made by a replay, and made again by it


class Freed(NamedTuple):
    """What a removal frees.

    files : names of files of PER_REQUEST_TABLES, of old days
    size_bytes : of these files
    digests : names of digests whose file is not there
    """

    files: list[str]
    size_bytes: int
    digests: list[str]


def tidy_lake(lake: Lake, keep_days: int, is_dry_run: bool = False) -> Freed:
    """Remove the outcomes and stages of all but the last `keep_days` replayed days of each trace.

    Digests whose file is not there go too. With `is_dry_run` nothing is removed.
    """
    old = [path for table in PER_REQUEST_TABLES for path in old_files(lake, table, keep_days)]
    sizes = [path.stat().st_size for path in old]
    vanished = [path for path in sorted(digested_files(lake.root)) if not path.is_file()]
    if not is_dry_run:
        write_scoreboards(lake)  # they need the outcomes
        for path in (*old, *vanished):
            lake.remove(path)
    digests = [lake.below(digest_path(lake.root, path)) for path in vanished]
    return Freed([*map(lake.below, old)], sum(sizes), digests)


def old_files(lake: Lake, table: str, keep_days: int) -> list[LakePath]:
    """Return the files of all but the last `keep_days` days of each trace of a table."""
    days = {trace: lake.days(table, trace)[-keep_days:] for trace in lake.traces(table)}
    kept = {(trace, day.isoformat()) for trace, found in days.items() for day in found}
    places = {path: lake.partition_of(path) for path in lake.files(table)}
    return [path for path, place in places.items() if (place["trace"], place["day"]) not in kept]
