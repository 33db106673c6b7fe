"""Read the traffic of `fleetcast configure`: the busiest hours of a trace file, or of a trace in the lake."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies.try_fleet import (
    build_request_arrays,
    frame_requests,
    read_file_requests,
    with_prefix_of_file,
)
from fleetcast.models.configure.fleet_trials import TrafficWindow, busiest_windows
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.model_rows import names_by_model
from fleetcast.models.world.toml_dataclasses import ConfigError

LEAST_HOUR_REQUESTS = 200  # in the busiest hours: of fewer, one late request is a large share
MOST_HOUR_REQUESTS = 4_000_000  # in the busiest hours: some 400 MB
BUSIEST_HOURS_SQL = """
select floor(epoch(arrived_at) / 3600) as hour from requests
where trace = $trace and ($llm is null or llm = $llm)
group by all order by sum(input_tokens + output_tokens) desc, hour limit $hours
"""


class ConfigureTraffic(NamedTuple):
    """The traffic that engine settings are chosen for."""

    name: str
    hours: Sequence[TrafficWindow]  # the busiest ones
    prefixes: tuple[str, ...]  # prefix modes of [fleet] for which the traffic has data
    notes: tuple[str, ...]  # on the requests that were taken, and on their prefix cache

    @property
    def requests(self) -> int:
        """Requests of the busiest hours."""
        return sum(window.trace.arrival_s.size for window in self.hours)

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        lengths = [int((w.trace.input_tokens + w.trace.output_tokens).max()) for w in self.hours]
        return max(lengths)


def read_configure_traffic(
    source: str, llm: str, hours: int, catalogue: Catalogue, config: RunConfig, lake: Lake, scratch: Path,
    progress: Progress,
) -> ConfigureTraffic:  # fmt: skip
    """Read the busiest hours of a trace file, or of a trace in the lake by its name.

    A file serves the llm with all its requests; of a trace in the lake, those for the llm, if it has any.
    ConfigError for neither, and for too few requests.
    """
    path, taken = Path(source), ""
    if path.exists():
        rows = read_file_requests(path, catalogue, scratch, progress).rows
        parts, name = [rows], path.name
    else:
        (parts, taken), name = read_lake_hours(source, llm, hours, lake, catalogue), source
    count = sum(map(len, parts))
    if count > MOST_HOUR_REQUESTS and not path.exists():
        raise ConfigError(
            f"{name}: its busiest hours have {count:,} requests, at most {MOST_HOUR_REQUESTS:,}. Lower "
            "--hours."
        )
    configured, cache = with_prefix_of_file(config, pd.concat(parts))
    prefixes = tuple(dict.fromkeys((configured.fleet.prefix, "none")))
    windows = [build_traffic_window(part, catalogue, config, prefixes) for part in parts]
    if path.exists():
        windows = busiest_windows(windows[0], HOUR_S, hours)
    traffic = ConfigureTraffic(name, windows, prefixes, tuple(filter(None, (taken, cache))))
    if traffic.requests < LEAST_HOUR_REQUESTS:
        raise ConfigError(
            f"{name}: its busiest hours have {traffic.requests:,} requests, at least {LEAST_HOUR_REQUESTS} "
            "are needed to measure a percentile. Name a longer trace, or more --hours."
        )
    return traffic


def find_only_trace(lake: Lake) -> str:
    """Return the name of the one trace in the lake; ConfigError where it has none or several."""
    names = lake.traces("requests")
    if len(names) != 1:
        has = f"has {len(names)} traces: {', '.join(names)}" if names else "has no trace"
        raise ConfigError(f"No --trace is given, and the lake {has}. Name a trace of the lake, or a file.")
    return names[0]


def read_lake_hours(
    trace: str, llm: str, hours: int, lake: Lake, catalogue: Catalogue
) -> tuple[list[pd.DataFrame], str]:
    """Return the requests of the busiest hours, by tokens, of a trace in the lake; ConfigError without it.

    They are those for the llm, or for the catalogue's llm of this model; without any, all of them, and the
    returned line says so.
    """
    if not lake.days("requests", trace):
        raise ConfigError(
            f"--trace {trace}: there is no such file, and no trace of this name in the lake. Name a file, or "
            "run fleetcast ingest first."
        )
    names = dict.fromkeys([llm, names_by_model(catalogue.llms).get(llm, llm)])
    for only in (*names, None):
        found = lake.sql(BUSIEST_HOURS_SQL, trace=trace, llm=only, hours=hours).to_pylist()
        if found:
            break
    starts = sorted(float(row["hour"]) for row in found)
    parts = [
        frame_requests(lake.sql("reads/configure_hour.sql", trace=trace, llm=only, hour=hour))
        for hour in starts
    ]
    taken = f"{trace} has no request for {llm}: those for all its llms are taken." if only is None else ""
    return parts, taken


def build_traffic_window(
    rows: pd.DataFrame, catalogue: Catalogue, config: RunConfig, prefixes: Sequence[str]
) -> TrafficWindow:
    """Return requests as arrays, for each prefix mode."""
    fleets = {prefix: dataclasses.replace(config.fleet, prefix=prefix) for prefix in prefixes}
    traces = {
        prefix: build_request_arrays(rows, catalogue, fleet, "the traffic")
        for prefix, fleet in fleets.items()
    }
    return TrafficWindow(traces, config.fleet.prefix_block_tokens)
