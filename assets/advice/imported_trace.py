"""The trace that a page is made from: its lake, what its source names, and what was assumed instead."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from fleetcast.assets.lake.settings import midnight
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.toml_dataclasses import require_known

DEFAULT_LLM = "llama3.1-8b"  # assumed where a trace names no llm and the user names none
CONFIG_FORMAT = "config"  # format of a trace that is read from the lake of its config
MAX_DAYS_READ = 15  # two weeks of history, and the day to replay

OPEN_GAP_QUERY = (
    "select 1 from silences where trace = $trace and silence_start is not null and silence_end is null"
)


class ImportedTrace(NamedTuple):
    """A trace in a lake, with the facts that its source gives and the assumptions for those it does not."""

    lake: Lake
    trace: str
    source: str  # name of the file, or of the trace that was copied
    format: str
    left_out: Mapping[str, int]  # rows that are not requests, by reason
    requests: int
    first_at: datetime
    last_at: datetime
    input_tokens: float
    output_tokens: float
    llms: tuple[str, ...]  # the llms to plan for
    # Requests by the source's name of the llm; empty if it names none.
    requests_by_source_llm: Mapping[str, int]
    unprofiled: Mapping[str, int]  # requests by llm without a latency profile and without a substitute
    as_llm: str | None  # the llm assumed for those without a profile or name
    regions: tuple[str, ...]
    tiers: tuple[str, ...]
    app: str | None  # the only app; None if there are several
    missing_keys: frozenset[str]  # of region, llm, tier: those that the source does not name
    distributed_keys: tuple[str, ...] = ()  # of region, llm, tier: missing, distributed by shares at landing
    clock: str | None = None  # how timestamps were read; None if a mapping file gives their start
    output_tokens_assumed: int | None = None  # for answers whose length the source does not give
    unknown_regions: Mapping[str, int] = MappingProxyType({})  # requests by region not in the catalogue
    fallback_region: str = ""  # the catalogue's region used for those
    cached_share: float | None = None  # of the input tokens, found in the prefix cache; None: not recorded
    has_prompt_hashes: bool = False

    @property
    def first_day(self) -> date:
        """The first of the days that are read."""
        return max(self.first_at.date(), self.last_at.date() - timedelta(days=MAX_DAYS_READ))

    @property
    def last_whole_day(self) -> date | None:
        """The last day that was recorded to its end; None if no such day has a day before it.

        A day counts as recorded to its end if the last request lies within an hour of it, or within the mean
        time of 20 requests.
        """
        mean_s = (self.last_at - self.first_at).total_seconds() / max(self.requests, 1)
        slack = timedelta(seconds=max(3600.0, 20 * mean_s))
        next_midnight = midnight(self.last_at.date() + timedelta(days=1))
        last = (
            self.last_at.date()
            if next_midnight - self.last_at <= slack
            else self.last_at.date() - timedelta(days=1)
        )
        first_midnight = midnight(self.first_at.date())
        first = self.first_at.date() + timedelta(
            days=int(self.first_at - first_midnight > timedelta(hours=12))
        )
        return last if last > first else None

    @property
    def day_to_plan(self) -> date:
        """The day after the last one; the day after the last whole day if the last day is cut off.

        With few requests the lake detects no gap at the cut, and the missing hours would count as zero.
        """
        last, whole = self.last_at.date(), self.last_whole_day
        if whole is None or whole == last or self.lake.sql(OPEN_GAP_QUERY, trace=self.trace).num_rows:
            return last + timedelta(days=1)
        return whole + timedelta(days=1)


def require_profiled(llm: str | None, catalogue: Catalogue) -> None:
    """Raise ConfigError if the llm to assume has no latency profile."""
    if llm is not None:
        require_known(llm, catalogue.llms, "profiled llm", "--assume-llm")


def count_shares(counts: Mapping[str, int]) -> Sequence[tuple[str, float]]:
    """Return each name's share of the counts, largest first."""
    total = sum(counts.values())
    return [(name, count / total) for name, count in sorted(counts.items(), key=lambda item: -item[1])]


def unprofiled_share(unprofiled: Mapping[str, int], planned: int) -> float:
    """Return the share of all requests that have no profile; `planned`: the others, which have one."""
    left = sum(unprofiled.values())
    return left / (left + planned)
