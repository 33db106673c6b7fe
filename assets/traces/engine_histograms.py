"""Histograms of engines by hour (token lengths, latencies); each engine version may have other buckets."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from fleetcast.assets.traces.prometheus_answers import CounterSeries
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.counter_readings import (
    CounterReadings,
    counter_increases,
    reading_step_s,
    span_rows,
)
from fleetcast.models.traffic.length_histograms import (
    LengthHistogram,
    length_cells,
    shift_means,
    spread_histogram,
)
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.engine_metrics import EngineMetrics

ProcessLabels = tuple[tuple[str, str], ...]  # the labels of a process
# Measure -> for each layout of buckets: upper bounds (bounds,), cumulative counts (hours, bounds).
BucketLayouts = Mapping[str, Sequence[tuple[Floats, Floats]]]


class HistogramReader:
    """Reads histograms endpoint by endpoint, and records how precisely they give a length."""

    def __init__(self, series: Sequence[CounterSeries]) -> None:
        self.series = series
        self.layouts: dict[str, set[bytes]] = defaultdict(set)
        self.widest: dict[str, float] = defaultdict(float)  # largest share of all lengths in one bucket
        self.above_last = 0  # lengths above the last finite bound

    def read(
        self,
        buckets: CounterReadings,
        engine: EngineMetrics,
        targets: Mapping[ProcessLabels, Sequence[int]],
        begun: set[int],
        hours: Ints,
    ) -> BucketLayouts:
        """Sum the histograms of an endpoint's processes by measure, layout of buckets and hour.

        buckets : readings of the bucket counters, shape (readings,)
        targets : the counters of each process
        begun : counters whose first value counts, because the age of their process is known
        hours : hours since 1970, in order, shape (hours,)
        """
        found = counter_increases(buckets, reading_step_s(buckets.t))
        found = found.at(~found.is_first | np.isin(found.series, list(begun)))
        at = span_rows(hours, found.t1, HOUR_S)
        start = np.searchsorted(found.series, np.arange(len(self.series) + 1))
        result: dict[str, list[tuple[Floats, Floats]]] = {}
        for measure, names in engine.histograms.items():
            layouts: dict[tuple[float, ...], Floats] = {}
            for numbers in targets.values():
                covered = np.zeros(hours.size, np.bool_)
                for name in names:
                    bound_of = {n: le for n in numbers if (le := self._bound(n, name)) is not None}
                    bounds = np.unique(list(bound_of.values()))
                    if bounds.size < 2 or bounds[-1] != np.inf:
                        continue
                    counts = np.zeros((hours.size, bounds.size))
                    is_read = np.zeros(counts.shape, np.bool_)
                    for n, le in bound_of.items():
                        span, column = slice(start[n], start[n + 1]), np.searchsorted(bounds, le)
                        np.add.at(counts[:, column], at[span], found.by[span])
                        is_read[at[span], column] = True
                    free = is_read[:, -1] & ~covered
                    covered |= free
                    for has_bound in np.unique(is_read[free], axis=0):  # one layout per engine version
                        rows = free & (is_read == has_bound).all(axis=1)
                        layout = tuple(bounds[has_bound].tolist())
                        total = layouts.setdefault(layout, np.zeros((hours.size, len(layout))))
                        total[rows] += counts[rows][:, has_bound]
            result[measure] = [(np.array(b), counts) for b, counts in layouts.items() if counts.sum() > 0]
            if measure.endswith("tokens"):
                self.layouts[measure] |= {part[0].tobytes() for part in result[measure]}
        return result

    def _bound(self, number: int, name: str) -> float | None:
        """Return the upper bound of a counter that is a bucket of the histogram, else None."""
        series = self.series[number]
        return series.le if series.metric == f"{name}_bucket" else None

    def shape(self, measure: str, histograms: BucketLayouts, mean: Floats) -> LengthHistogram:
        """Return the lengths by hour in cells that fit every layout: counts (hours, cells).

        measure : `input_tokens` or `output_tokens`
        histograms : the result of `read`
        mean : mean length of each hour in tokens, shape (hours,); the counts are shifted to it
        """
        parts = histograms[measure]
        if not parts:
            self.widest[measure] = 1.0
            return LengthHistogram(np.array([0.5, 2.0]), np.ones((1, 1)))
        cells = length_cells(bound for bounds, _ in parts for bound in bounds)
        hours = parts[0][1].shape[0]
        counts = np.zeros((hours, cells.size - 1))
        for bounds, cumulative in parts:
            for hour in np.flatnonzero(cumulative[:, -1] > 0):
                counts[hour] += spread_histogram(bounds, cumulative[hour], cells)
        per_bucket = np.concatenate([np.diff(c.sum(axis=0), prepend=0.0) for _, c in parts])
        total = sum(c[:, -1].sum() for _, c in parts)
        self.widest[measure] = max(self.widest[measure], float(per_bucket.max() / total))
        self.above_last += int(sum(c[:, -1].sum() - c[:, -2].sum() for _, c in parts))
        counts[counts.sum(axis=1) <= 0] = counts.sum(axis=0)
        bounds = np.unique(np.concatenate([bounds for bounds, _ in parts]))
        return shift_means(LengthHistogram(cells, counts), bounds, mean)


def merge_bucket_layouts(parts: Sequence[tuple[Floats, Floats]], hours: int) -> tuple[Floats, Floats]:
    """Merge the layouts of one measure, each with upper bounds (bounds,), cumulative counts (hours, bounds).

    Returns the upper bounds of all (bounds,), in the unit of the measure; counts per bucket (hours, bounds).
    """
    bounds = np.unique(np.concatenate([b for b, _ in parts]))
    counts = np.zeros((hours, bounds.size))
    for part_bounds, cumulative in parts:
        counts[:, np.searchsorted(bounds, part_bounds)] += np.diff(cumulative, axis=1, prepend=0.0)
    return bounds, counts
