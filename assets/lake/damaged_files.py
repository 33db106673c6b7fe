"""Find damaged and vanished files of the lake, and the commands that make them again."""

from collections.abc import Iterable
from datetime import date
from typing import NamedTuple

from fleetcast.assets.lake.empty_query_hints import FILLING_COMMANDS, MARTS_OVER_TRIALS
from fleetcast.assets.lake.file_digests import (
    FileState,
    digest_path,
    digest_text,
    digested_files,
    sha256_of,
    verify_files,
)
from fleetcast.assets.lake.schemas import PARTITIONS
from fleetcast.assets.lake.stage_cache import STAGES, TRACE_TABLES
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.config_loading import CONFIG_DIR

LANDED_TABLES = ("requests", "answers", "quarantine", "ingests")  # with a file for each landed file
WITHOUT_CONFIG = ("ingest", "characterise", "study")  # commands that make tables without a run's config
WITHOUT_DATE = (*WITHOUT_CONFIG, "plan buy")  # and those that make all days at once
TRIAL_COMMANDS = dict(MARTS_OVER_TRIALS.values())  # by experiment


class FilesCheck(NamedTuple):
    """Result of verifying files of the lake.

    damaged : names of files whose bytes are not those that were written, with the command that makes each
        again; of a damaged digest, whose file is as written, with the command that writes it again
    missing : names of files that have a digest and are not there, with the command that makes each again
    verified : number of files with a digest
    without_digest : names of files without one (of older lakes, copied, or their digest was lost)
    """

    damaged: dict[str, str]
    missing: dict[str, str]
    verified: int
    without_digest: list[str]

    @property
    def broken(self) -> dict[str, str]:
        """Damaged and missing files, with the command that makes each again."""
        return self.damaged | self.missing


def check_lake_files(lake: Lake) -> FilesCheck:
    """Verify every file of every table."""
    files = [file for table in PARTITIONS for file in lake.files(table)]
    return _check(lake, files, digested_files(lake.root))


def check_night_inputs(lake: Lake, trace: str, nights: Iterable[date], history: Iterable[date]) -> FilesCheck:
    """Verify what runs of these nights read: requests, demand, gaps and answers of them and their history.

    Of the nights alone: the forecasts, plans and outcomes that an earlier run left. Scoring may read them.
    """
    nights = list(nights)
    files, digested = set[LakePath](), set[LakePath]()
    for table in TRACE_TABLES:
        for where in days_of_table(table, [*history, *nights]):
            files.update(lake.files(table, trace=trace, **where))
            digested |= digested_files(lake.root, lake.below(lake.path(table, "*", trace=trace, **where)))
    made = (table for stage in ("forecasts", "plans", "replays") for table in STAGES[stage].made)
    for table in made:  # one that is missing is made again
        for where in days_of_table(table, nights):
            files.update(lake.files(table, trace=trace, **where))
    return _check(lake, sorted(files), digested)


def days_of_table(table: str, days: Iterable[date]) -> list[dict[str, date]]:
    """Return the partitions of these days; the whole trace of a table that has no days."""
    return [{"day": day} for day in days] if "day" in PARTITIONS[table] else [{}]


def _check(lake: Lake, files: Iterable[LakePath], digested: set[LakePath]) -> FilesCheck:
    states = dict(verify_files(lake.root, files))
    damaged = {
        lake.below(file): remaking_command(lake, file)
        for file, state in states.items()
        if state is FileState.DAMAGED
    }
    for file, state in states.items():
        if state is FileState.DIGEST_DAMAGED:
            path = digest_path(lake.root, file)
            damaged[lake.below(path)] = f"echo '{digest_text(lake.root, file, sha256_of(file))}' > {path}"
    missing = {
        lake.below(file): remaking_command(lake, file)
        for file in sorted(digested - states.keys())
        if not file.is_file()
    }
    without = [lake.below(file) for file, state in states.items() if state is FileState.WITHOUT_DIGEST]
    return FilesCheck(damaged, missing, len(states) - len(without), without)


def remaking_command(lake: Lake, file: LakePath) -> str:
    """Return the shell command that makes a file of a table again.

    The config is that of the trace: shipped ones have its name. CONFIG stands for one of your own.
    """
    table, partition = lake.below(file).split("/")[0], lake.partition_of(file)
    landed = (partition.get("trace"), file.stem)
    if table in LANDED_TABLES and lake.path("ingests", file.stem, trace=landed[0]).is_file():
        return f"fleetcast forget {file.stem} && fleetcast ingest"
    command = FILLING_COMMANDS.get(table, "nightly")
    if table == "trials":
        command = TRIAL_COMMANDS.get(partition["experiment"], command)
    day = partition.get("day", partition.get("made_day"))
    if day and not command.startswith(WITHOUT_DATE):
        command = f"{command} --date {day}"
    if not command.startswith(WITHOUT_CONFIG):
        is_shipped = (CONFIG_DIR / f"{landed[0]}.toml").is_file()
        command = f"{command} --config {landed[0] if is_shipped else 'CONFIG'}"
    return f"rm -f {file} && fleetcast {command.replace('TRACE', str(landed[0]))}"
