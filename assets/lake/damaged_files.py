"""Find damaged files of the lake, and the commands that make them again."""

from collections.abc import Iterable
from datetime import date
from typing import NamedTuple

from fleetcast.assets.lake.empty_query_hints import FILLING_COMMANDS, MARTS_OVER_TRIALS
from fleetcast.assets.lake.file_digests import verify_files
from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.stage_cache import TRACE_TABLES
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.warehouse import Lake

LANDED_TABLES = ("requests", "answers", "quarantine", "ingests")  # with a file for each landed file
TRIAL_COMMANDS = dict(MARTS_OVER_TRIALS.values())  # by experiment


class FilesCheck(NamedTuple):
    """Result of verifying files of the lake.

    damaged : names of files whose bytes are not those that were written, with the command to make each again
    verified, without_digest : number of files with a digest, and without one (older lakes, copied files)
    """

    damaged: dict[str, str]
    verified: int
    without_digest: int


def check_lake_files(lake: Lake) -> FilesCheck:
    """Verify every file of every table."""
    return _check(lake, (file for table in PARTITIONS for file in lake.files(table)))


def check_night_inputs(lake: Lake, trace: str, days: Iterable[date]) -> FilesCheck:
    """Verify the files that a night reads of these days: requests, demand, gaps in the data, answers."""
    days = list(days)
    files = {
        file
        for table in TRACE_TABLES
        for where in ([{"day": day} for day in days] if "day" in PARTITIONS[table] else [{}])
        for file in lake.files(table, trace=trace, **where)
    }
    return _check(lake, sorted(files))


def _check(lake: Lake, files: Iterable[LakePath]) -> FilesCheck:
    found = list(verify_files(lake.root, files))
    damaged = {
        lake.below(file): remaking_command(lake, file) for file, is_whole in found if is_whole is False
    }
    without = sum(is_whole is None for _, is_whole in found)
    return FilesCheck(damaged, len(found) - without, without)


def remaking_command(lake: Lake, file: LakePath) -> str:
    """Return the shell command that makes a file of a table again."""
    table, *folders = lake.below(file.parent).split("/")
    partition = dict(folder.split("=", 1) for folder in folders)
    landed = (partition.get("trace"), file.stem)
    if table in LANDED_TABLES and lake.path("ingests", file.stem, trace=landed[0]).is_file():
        return f"fleetcast forget {file.stem} && fleetcast ingest"
    command = FILLING_COMMANDS.get(table, "nightly")
    if table == "trials":
        command = TRIAL_COMMANDS.get(partition["experiment"], command)
    if day := partition.get("day", partition.get("made_day")):
        command = f"{command} --date {day}"
    return f"rm {file} && fleetcast {command.replace('TRACE', str(landed[0]))}"
