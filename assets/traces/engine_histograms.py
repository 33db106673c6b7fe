"""The histograms of engines by hour, whatever buckets each version has: token shapes, latencies."""

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
BucketLayouts = Mapping[
    str, Sequence[tuple[Floats, Floats]]
]  # measure -> bounds, cumulative counts (hours, bounds)


class HistogramReader:
    """Reads them endpoint by endpoint, and notes how well they tell a length."""

    def __init__(self, series: Sequence[CounterSeries]) -> None:
        self.series = series
        self.layouts: dict[str, set[bytes]] = defaultdict(set)
        self.widest: dict[str, float] = defaultdict(float)  # share of all lengths in one bucket, at most
        self.above_last = 0

    def read(
        self,
        buckets: CounterReadings,
        engine: EngineMetrics,
        targets: Mapping[ProcessLabels, Sequence[int]],
        begun: set[int],
        hours: Ints,
    ) -> BucketLayouts:
        """By measure: for each layout of buckets its bounds and its cumulative counts by hour."""
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
                    own = {n: le for n in numbers if (le := self._bound(n, name)) is not None}
                    bounds = np.unique(list(own.values()))
                    if bounds.size < 2 or bounds[-1] != np.inf:
                        continue
                    counts = np.zeros((hours.size, bounds.size))
                    is_read = np.zeros(counts.shape, np.bool_)
                    for n, le in own.items():
                        span, column = slice(start[n], start[n + 1]), np.searchsorted(bounds, le)
                        np.add.at(counts[:, column], at[span], found.by[span])
                        is_read[at[span], column] = True
                    free = is_read[:, -1] & ~covered
                    covered |= free
                    for is_there in np.unique(is_read[free], axis=0):  # a version each
                        rows = free & (is_read == is_there).all(axis=1)
                        layout = tuple(bounds[is_there].tolist())
                        whole = layouts.setdefault(layout, np.zeros((hours.size, len(layout))))
                        whole[rows] += counts[rows][:, is_there]
            result[measure] = [(np.array(b), counts) for b, counts in layouts.items() if counts.sum() > 0]
            if measure.endswith("tokens"):
                self.layouts[measure] |= {part[0].tobytes() for part in result[measure]}
        return result

    def _bound(self, number: int, name: str) -> float | None:
        """Upper bound of a bucket of the histogram; None for what is none."""
        one = self.series[number]
        return one.le if one.metric == f"{name}_bucket" else None

    def shape(self, measure: str, histograms: BucketLayouts, mean: Floats) -> LengthHistogram:
        """The lengths by hour in cells that fit every layout, with the hour's mean."""
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
        whole = sum(c[:, -1].sum() for _, c in parts)
        self.widest[measure] = max(self.widest[measure], float(per_bucket.max() / whole))
        self.above_last += int(sum(c[:, -1].sum() - c[:, -2].sum() for _, c in parts))
        counts[counts.sum(axis=1) <= 0] = counts.sum(axis=0)
        bounds = np.unique(np.concatenate([bounds for bounds, _ in parts]))
        return shift_means(LengthHistogram(cells, counts), bounds, mean)


def merge_bucket_layouts(parts: Sequence[tuple[Floats, Floats]], hours: int) -> tuple[Floats, Floats]:
    """Counts per bucket of all layouts side by side: bounds and (hours, bounds)."""
    bounds = np.unique(np.concatenate([b for b, _ in parts]))
    counts = np.zeros((hours, bounds.size))
    for own, cumulative in parts:
        counts[:, np.searchsorted(bounds, own)] += np.diff(cumulative, axis=1, prepend=0.0)
    return bounds, counts
