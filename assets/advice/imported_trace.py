"""A trace as a page is made of it: the lake that it lies in, what it says of itself, and what it does not."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from fleetcast.assets.lake.settings import midnight
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.toml_dataclasses import require_known

DEFAULT_LLM = "llama3.1-8b"  # where a trace names no llm and nobody says which
CONFIG_FORMAT = "config"  # the format of a trace that is read where its config has it
MAX_DAYS_READ = 15  # that are read: two weeks of history, and the day that is replayed

OPEN_GAP_QUERY = (
    "select 1 from silences where trace = $trace and silence_start is not null and silence_end is null"
)


class ImportedTrace(NamedTuple):
    """A trace in a lake, and what it says of itself."""

    lake: Lake
    trace: str
    source: str  # the file, or the trace that it is a copy of
    format: str
    left_out: Mapping[str, int]  # rows that are no requests, by reason
    requests: int
    first_at: datetime
    last_at: datetime
    input_tokens: float
    output_tokens: float
    llms: tuple[str, ...]  # that are planned for
    requests_by_source_llm: Mapping[
        str, int
    ]  # requests by what the source calls the llm; empty where it names none
    unprofiled: Mapping[str, int]  # of these, the ones that nobody profiled and that nothing stands for
    as_llm: str | None  # what stands for those that have no profile, or no name
    regions: tuple[str, ...]
    tiers: tuple[str, ...]
    app: str | None  # the only one; None where there are several
    lacks: frozenset[str]  # of region, llm, tier: what the source does not name
    dealt: tuple[str, ...] = ()  # of region, llm, tier: by shares when the trace landed, for it names none
    clock: str | None = None  # what its timestamps mean, where no mapping file says when they begin
    output_tokens_assumed: int | None = None  # of answers whose length the source does not tell
    unknown_regions: Mapping[str, int] = MappingProxyType({})  # requests by region that the catalogue lacks
    fallback_region: str = ""  # the catalogue's region that stands for those

    @property
    def first_day(self) -> date:
        """Of those that are read."""
        return max(self.first_at.date(), self.last_at.date() - timedelta(days=MAX_DAYS_READ))

    @property
    def last_whole_day(self) -> date | None:
        """The last day that was recorded to its end; None without one that has a day before it.

        A day ends where as much time is left as 20 requests take in the mean, or an hour.
        """
        mean_s = (self.last_at - self.first_at).total_seconds() / max(self.requests, 1)
        slack = timedelta(seconds=max(3600.0, 20 * mean_s))
        ends = midnight(self.last_at.date() + timedelta(days=1))
        last = (
            self.last_at.date() if ends - self.last_at <= slack else self.last_at.date() - timedelta(days=1)
        )
        begins = midnight(self.first_at.date())
        first = self.first_at.date() + timedelta(days=int(self.first_at - begins > timedelta(hours=12)))
        return last if last > first else None

    @property
    def day_to_plan(self) -> date:
        """The day after the last one; where that breaks off unnoticed, the one after the last whole day.

        Few requests end without a silence that the lake knows; what did not come would count as zero.
        """
        last, whole = self.last_at.date(), self.last_whole_day
        if whole is None or whole == last or self.lake.sql(OPEN_GAP_QUERY, trace=self.trace).num_rows:
            return last + timedelta(days=1)
        return whole + timedelta(days=1)


def require_profiled(llm: str | None, catalogue: Catalogue) -> None:
    """Refuse an llm that stands for others and has no latency profile itself."""
    if llm is not None:
        require_known(llm, profiled_llms(catalogue), "profiled llm", "--as")


def profiled_llms(catalogue: Catalogue) -> list[str]:
    """The llms that some deployment has a latency profile of, in file order."""
    known = {profile.llm for profile in catalogue.latency}
    return [llm for llm in catalogue.llms if llm in known]


def count_shares(counts: Mapping[str, int]) -> Sequence[tuple[str, float]]:
    """Each name's share of the counts, largest first."""
    total = sum(counts.values())
    return [(name, count / total) for name, count in sorted(counts.items(), key=lambda one: -one[1])]
