"""From the counters of processes to the load of each endpoint: requests, tokens and length shapes by hour.

The labels of a counter, except the inner ones of data/catalogue/metrics.toml, identify its process. A process
that is scraped twice counts once, a process that restarts is continued, and gaps in the data stay gaps.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np

from fleetcast.assets.lake.warehouse import Connection
from fleetcast.assets.traces.engine_histograms import HistogramReader, ProcessLabels, merge_bucket_layouts
from fleetcast.assets.traces.ingest_bounds import IngestError
from fleetcast.assets.traces.metered_endpoints import TOKEN_QUARTER_S, MeteredEndpoint, Place
from fleetcast.assets.traces.prometheus_answers import CounterSeries, QualityFinding
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.counter_readings import (
    CounterIncreases,
    CounterReadings,
    counter_increases,
    find_duplicate_processes,
    process_age_s,
    reading_step_s,
    span_numbers,
    span_rows,
)
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.engine_metrics import EngineMetrics

MOST_REQUESTS_PER_S = 1e4  # of one counter; no engine serves as many, and a minute of them fits into memory
MOST_PER_S = 1e8  # of any other counter: tokens, seconds, buckets
LONGEST_GAP_S = 900.0  # longest gap between readings over which an endpoint's requests are spread evenly


class CounterReader:
    """Reads the endpoints of a folder of answers one after the other, and records its findings."""

    def __init__(self, con: Connection, series: Sequence[CounterSeries], folder: str) -> None:
        self.con, self.series, self.folder = con, series, folder
        first = con.execute("select min(t) from samples").fetchone()
        self.origin_s = float(first[0]) if first and first[0] is not None else 0.0
        self.findings: list[QualityFinding] = []
        self.histograms = HistogramReader(series)
        self.restarts = self.unknown_before = self.left_out = 0
        self.gaps: set[tuple[float, float]] = set()
        self.renamed: set[str] = set()

    def read(self, place: Place, engine: EngineMetrics, numbers: Sequence[int]) -> MeteredEndpoint | None:
        """Return the load of one endpoint; None if it has no requests or no counter of requests.

        `numbers` are the positions of its counters in `series`. IngestError if one grows by more than any
        engine counts, or falls below 0.
        """
        rows = self.con.execute(
            "select series, t, max(value) as value from samples where series in (select unnest($numbers)) "
            "group by series, t order by series, t",
            {"numbers": list(numbers)},
        ).fetchnumpy()
        readings = CounterReadings(*(np.asarray(rows[name]) for name in CounterReadings._fields))
        is_bucket = np.isin(readings.series, [n for n in numbers if self.series[n].le is not None])
        counters, buckets = readings.at(~is_bucket), readings.at(is_bucket)
        step_s = reading_step_s(counters.t)
        every = counter_increases(readings, step_s)
        self._check_increases(engine, every.at(~every.is_first))
        found = every.at(~is_bucket)
        targets = self._without_duplicates(engine, numbers, counters)
        ages_s = self._ages_s(engine, targets, found, step_s)
        firsts = every.at(every.is_first & np.isin(every.series, list(ages_s)))
        ages = np.array([ages_s[number] for number in firsts.series.tolist()])
        self._check_increases(engine, firsts._replace(t0=firsts.t1 - ages))
        found, unread = self._usable(found, targets, ages_s, step_s)
        pairs = [(row.requests, row.input_tokens) for row in engine.counted]
        requests, tokens = self._role_increases(found, targets, pairs)
        self.restarts += int(requests.is_reset.sum())
        self.left_out += int(self._role_increases(unread, targets, pairs)[0].by.sum())
        if not requests.by.sum() > 0:
            return None
        t0, t1, n, total = _sum_over_processes(requests, tokens)
        quarters, hours = (np.unique(span_numbers(t1[n > 0], span_s)) for span_s in (TOKEN_QUARTER_S, HOUR_S))
        (outputs,) = self._role_increases(found, targets, [(name,) for name in engine.outputs])
        hits, looked_up = self._role_increases(found, targets, [(row.hits, row.of) for row in engine.cache])
        delays_s, delayed = self._role_increases(found, targets, [row.delay for row in engine.counted])
        per_hour = _sum_by_span(requests, hours)
        histograms = self.histograms.read(buckets, engine, targets, set(ages_s), hours)
        return MeteredEndpoint(
            place,
            t0,
            t1,
            n,
            total,
            quarters,
            np.rint(_sum_by_span(outputs, quarters, TOKEN_QUARTER_S)).astype(np.int64),
            hours,
            np.clip(_ratio(_sum_by_span(hits, hours), _sum_by_span(looked_up, hours)), 0.0, 1.0),
            np.clip(_ratio(_sum_by_span(delays_s, hours), _sum_by_span(delayed, hours)), 0.0, HOUR_S),
            self.histograms.shape("input_tokens", histograms, _ratio(_sum_by_span(tokens, hours), per_hour)),
            self.histograms.shape(
                "output_tokens", histograms, _ratio(_sum_by_span(outputs, hours), per_hour)
            ),
            {
                measure: merge_bucket_layouts(parts, hours.size)
                for measure, parts in histograms.items()
                if parts
            },
        )

    def _check_increases(self, engine: EngineMetrics, found: CounterIncreases) -> None:
        """Raise IngestError for the first of these increases, shape (increases,), that no engine can have."""
        counted = {row.requests for row in engine.counted}
        numbers = [n for n in np.unique(found.series).tolist() if self.series[n].metric in counted]
        per_s = np.where(np.isin(found.series, numbers), MOST_REQUESTS_PER_S, MOST_PER_S)
        most = per_s * (found.t1 - found.t0)
        for row in np.flatnonzero((found.by < 0) | (found.by > most))[:1].tolist():
            until = datetime.fromtimestamp(found.t1[row], UTC)
            raise IngestError(
                f"{self.folder}: {self.series[found.series[row]].metric} grows by {found.by[row]:,.6g} in "
                f"the {found.t1[row] - found.t0[row]:,.0f} s before {until:%Y-%m-%d %H:%M:%S} UTC, must be 0 "
                f"to {most[row]:,.6g}: no engine counts more than {per_s[row]:,.0f} a second. Correct this "
                "sample in its file, or delete the folder: each ingest refuses it until then."
            )

    def _without_duplicates(
        self, engine: EngineMetrics, numbers: Iterable[int], counters: CounterReadings
    ) -> dict[ProcessLabels, list[int]]:
        """Return the counters of each process; a process that is scraped twice has those of one scrape.

        `numbers` are the positions of the counters in `series`, `counters` their readings, shape (readings,).
        """
        targets: dict[ProcessLabels, list[int]] = defaultdict(list)
        for number in numbers:
            targets[tuple(sorted(self.series[number].labels.items()))].append(number)
        processes = list(targets)
        tables: tuple[dict[int, tuple[Floats, Floats]], ...] = ({}, {})
        for key, process in enumerate(processes):
            for row in engine.counted:
                values = [
                    _sum_counters(counters, [n for n in targets[process] if self.series[n].metric == name])
                    for name in (row.requests, row.input_tokens)
                ]
                if all(t.size for t, _ in values):
                    tables[0][key], tables[1][key] = values
                    break
        for group in find_duplicate_processes(*tables):
            keep, *others = sorted(group, key=lambda key: (-tables[0][key][0].size, key))
            for other in others:
                different = dict(set(processes[other]) - set(processes[keep]))
                shown = ", ".join(f"{name}={text}" for name, text in sorted(different.items()))
                self.findings.append(
                    QualityFinding(
                        "read twice", f"{shown or 'a process'} repeats another series: counted once"
                    )
                )
                del targets[processes[other]]
        return dict(targets)

    def _ages_s(
        self,
        engine: EngineMetrics,
        targets: Mapping[ProcessLabels, Sequence[int]],
        found: CounterIncreases,
        step_s: float,
    ) -> dict[int, float]:
        """Return the age in seconds at the first reading, of the counters whose age is known.

        `found` has shape (increases,); times are in seconds since 1970.
        The age is unknown for a process that ran long before its first reading, and for a counter that exists
        when the readings begin. A counter that appears after the others of its process is one step old.
        """
        rows = np.flatnonzero(found.is_first)
        firsts = dict(zip(found.series[rows].tolist(), rows.tolist(), strict=True))
        requests = {row.requests for row in engine.counted}
        ages_s: dict[int, float] = {}
        for numbers in targets.values():
            first_s = {n: float(found.t1[firsts[n]]) for n in numbers if n in firsts}
            start = min(first_s.values(), default=0.0)
            at_start = [n for n, t in first_s.items() if t <= start + step_s / 2]
            ages_s |= dict.fromkeys(first_s.keys() - set(at_start), step_s)
            if start <= self.origin_s + step_s / 2:
                continue
            ages = [
                process_age_s(found, firsts[n], step_s) for n in at_start if self.series[n].metric in requests
            ]
            if ages and None not in ages:
                ages_s |= dict.fromkeys(
                    set(numbers) - first_s.keys() | set(at_start), max(age for age in ages if age is not None)
                )
            elif ages:
                self.unknown_before += 1
        return ages_s

    def _usable(
        self,
        found: CounterIncreases,
        targets: Mapping[ProcessLabels, Sequence[int]],
        ages_s: dict[int, float],
        step_s: float,
    ) -> tuple[CounterIncreases, CounterIncreases]:
        """Split the increases of these processes into those to count and those over gaps in the readings.

        found : increases of all counters, shape (increases,); times in seconds since 1970
        targets : the counters of each process to count
        ages_s : age at the first reading of the counters whose first value counts
        step_s : usual time between two readings

        Returns both, with the begin of first intervals set by the age.
        """
        is_known = ~found.is_first | np.isin(found.series, list(ages_s))
        found = found.at(is_known & np.isin(found.series, [n for group in targets.values() for n in group]))
        times = np.unique(np.concatenate([found.t1, found.t0[~found.is_first]]))
        t0 = found.t0.copy()
        for row in np.flatnonzero(found.is_first):
            t0[row] = found.t1[row] - ages_s[int(found.series[row])]
        for row in np.flatnonzero(found.is_reset & (found.t1 - t0 > 1.5 * step_s)):
            t0[row] = max(t0[row], found.t1[row] - (process_age_s(found, int(row), step_s) or np.inf))
        before = times[np.maximum(np.searchsorted(times, found.t1) - 1, 0)]
        is_gap = ~found.is_first & (before <= t0 + 1e-6) & (found.t1 - t0 > max(LONGEST_GAP_S, 1.5 * step_s))
        self.gaps |= set(zip(t0[is_gap].tolist(), found.t1[is_gap].tolist(), strict=True))
        found = found._replace(t0=t0)
        return found.at(~is_gap), found.at(is_gap)

    def _role_increases(
        self,
        found: CounterIncreases,
        targets: Mapping[ProcessLabels, Sequence[int]],
        names: Sequence[tuple[str, ...]],
    ) -> list[CounterIncreases]:
        """Return the increases, shape (increases,) each, of each role (request count, token count, ...).

        `names` are alternative metric names of the roles, the preferred first. At each reading a process is
        counted by the first alternative that it has.
        """
        width = len(names[0]) if names else 2
        picked: list[list[CounterIncreases]] = [[] for _ in range(width)]
        by_name: dict[str, list[int]] = defaultdict(list)
        for numbers in targets.values():
            covered: list[Floats] = []
            by_name.clear()
            for number in numbers:
                by_name[self.series[number].metric].append(number)
            for row in names:
                if not all(name in by_name for name in row):
                    continue
                parts = [found.at(_rows_of_counters(found.series, by_name[name])) for name in row]
                seen = np.concatenate([np.zeros(0), *covered])
                free = [~np.isin(part.t1, seen) for part in parts]
                if covered and any(part.by[mask].sum() > 0 for part, mask in zip(parts, free, strict=True)):
                    self.renamed.add(row[0])
                for role, (part, mask) in enumerate(zip(parts, free, strict=True)):
                    picked[role].append(part.at(mask))
                covered.append(np.unique(parts[0].t1))
        return [_concatenate([found.at(np.zeros(0, np.int64)), *parts]) for parts in picked]


def _concatenate(parts: Sequence[CounterIncreases]) -> CounterIncreases:
    """Join increases, shape (increases,) each, into one of shape (sum of increases,)."""
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return CounterIncreases(*columns)


def _rows_of_counters(series: Ints, numbers: Sequence[int]) -> Ints:
    """Return the rows of these counters, one after the other, shape (rows found,).

    `series`: number of the counter of each reading, sorted, shape (readings,).
    """
    ends = zip(np.searchsorted(series, numbers), np.searchsorted(series, numbers, side="right"), strict=True)
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(first, last) for first, last in ends)])


def _sum_counters(readings: CounterReadings, numbers: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the instants (s since 1970) at which counters were read, and their sum; (instants,) each."""
    rows = _rows_of_counters(readings.series, numbers)
    t, at = np.unique(readings.t[rows], return_inverse=True)
    return t, np.bincount(at, readings.value[rows], t.size).astype(np.float64)


def _sum_over_processes(
    requests: CounterIncreases, tokens: CounterIncreases
) -> tuple[Floats, Floats, Ints, Ints]:
    """Sum requests and input tokens, shape (increases,) each, of equal intervals over the processes.

    Returns begin and end of each interval in seconds since 1970, its requests, its tokens; (intervals,) each.
    """
    t0, t1 = (np.concatenate([getattr(part, name) for part in (requests, tokens)]) for name in ("t0", "t1"))
    keys, at = np.unique(np.stack([t1, t0]), axis=1, return_inverse=True)
    at, size = at.ravel(), keys.shape[1]
    n = np.bincount(at[: requests.by.size], requests.by, size)
    total = np.bincount(at[requests.by.size :], tokens.by, size)
    return keys[1], keys[0], np.rint(n).astype(np.int64), np.rint(total).astype(np.int64)


def _sum_by_span(found: CounterIncreases, spans: Ints, span_s: float = HOUR_S) -> Floats:
    """Return the increase (spans,) in each span of `span_s` seconds; `spans` (spans,) counts from 1970."""
    at = span_rows(spans, found.t1, span_s)
    return np.bincount(at, found.by, spans.size).astype(np.float64)


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Return part / whole, 0 where whole is 0; shape (spans,) each."""
    return np.divide(part, whole, out=np.zeros(part.size), where=whole > 0)
