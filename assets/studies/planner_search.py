"""Search the knobs of a day's planners, in a scratch lake, until all attain the same targets."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.forecasts.forecasts import forecast_day
from fleetcast.assets.lake.schemas import TIMESTAMP
from fleetcast.assets.lake.settings import Progress, RunSettings, midnight
from fleetcast.assets.studies.board_day import (
    ATTAINED,
    BoardDay,
    MetricRow,
    total_usd,
    totals_by_metric,
    with_policies,
    worst_attained_ratio,
)
from fleetcast.assets.studies.experiment import (
    EMPTY_MAPPING,
    INPUT_TABLES,
    TUNED,
    KnobSearch,
    Variant,
    scratch_lake,
)
from fleetcast.models.traffic.day_resample import resample_arrivals
from fleetcast.models.trials.target_search import TargetTrial
from fleetcast.models.world.knobs import factor_settings
from fleetcast.models.world.planners import ablation_steps

BOARD_NEAR_SHARE = 0.005  # the search ends when costs on both sides of the target differ by less
CLOSE_STEP = 1.02  # step of the search on a resample, from the result on the day itself
MAX_QUALITY_RAISES = 3  # times that a model routing is planned again for more quality
QUALITY_RAISE_FACTOR = 1.5  # of the missing quality, added to the required one
SHARED = (*INPUT_TABLES, "answers")


class PlannerSearch(KnobSearch):
    """The search of a day, in a scratch lake: all planners must attain a fraction of each tier's target."""

    def __init__(
        self,
        settings: RunSettings,
        day: date,
        progress: Progress,
        quality_margin: Mapping[str, float] = EMPTY_MAPPING,
        draw: int = 0,
        **start: Any,
    ) -> None:
        """Set up the search; `settings`: planners as policies, over a lake with the day's forecasts.

        `quality_margin`: quality required above that of [quality], by model routing. `draw`: number of the
        resample of the day's requests; 0: the recorded requests. `start`: of KnobSearch.
        """
        super().__init__(settings.config.replay.policies, near_share=BOARD_NEAR_SHARE, **start)
        self.settings, self.day, self.progress, self.draw = settings, day, progress, draw
        self.board_day = BoardDay(settings, day, progress, quality_margin)
        self.quality_raises = Counter[str]()
        self.found: dict[str, list[tuple[float, list[MetricRow]]]] = {name: [] for name in self.knob_trials}

    @classmethod
    def search_day(
        cls, settings: RunSettings, day: date, names: list[str], progress: Progress
    ) -> "PlannerSearch":
        """Search these planners on the day until each attains the required targets, or cannot."""
        with scratch_lake(with_policies(settings, names), settings.lake, SHARED) as scratch:
            # day_ahead_forecasts is the last table that forecast_day writes for a day.
            if day not in scratch.lake.days("day_ahead_forecasts", scratch.trace):
                forecast_day(scratch, day, progress)
            search = cls(scratch, day, progress)
            search.search(names)
            search.target = required_attainment_ratio(search.knob_trials.values())
            search.search(names)
        return search

    def search_resample(
        self, settings: RunSettings, first: Mapping[str, float], draw: int
    ) -> "PlannerSearch":
        """Search these planners on a resample of the day's requests, with new forecasts and plans.

        The required targets are those of the day itself; `first`: first capacity share by planner.
        """
        with scratch_lake(with_policies(settings, list(first)), settings.lake, SHARED) as scratch:
            write_resampled_day(scratch, self.day, draw)
            forecast_day(scratch, self.day, self.progress)
            margin = self.board_day.quality_margin
            start = {"target": self.target, "first": first, "step": CLOSE_STEP}
            search = PlannerSearch(scratch, self.day, self.progress, margin, draw, **start)
            search.search(list(first))
        return search

    def search(self, names: Sequence[str]) -> None:
        """Plan and replay until each planner attains the required targets, or cannot."""
        while points := self.points(names):
            self.replay_round(points)

    def replay_round(self, factors: Mapping[str, float]) -> None:
        """Plan and replay each planner at a factor of its knob (models/world/knobs.py)."""
        quality = dict[str, float | None]()
        found = self.board_day.replay({name: self._knobs(name, factor) for name, factor in factors.items()})
        for name, factor in factors.items():
            figures = found[name]
            self.found[name].append((factor, figures))
            trial = TargetTrial(factor, total_usd(figures), worst_attained_ratio(figures))
            self.knob_trials[name].append(trial)
            quality[name] = totals_by_metric(figures).get("quality")
        self._raise_quality(quality)

    def _knobs(self, name: str, factor: float) -> dict[str, float]:
        return factor_settings(self.settings.config.rules[name], factor)

    def _raise_quality(self, found: Mapping[str, float | None]) -> None:
        """Plan routings with too low a quality again for more, and restart the search of their planners."""
        config, missing = self.settings.config, dict[str, float]()
        required = config.quality.quality if config.quality else None
        for name, quality in found.items():
            kind = config.rules[name].answers
            if required and kind and quality is not None and quality < required:
                missing[kind] = max(missing.get(kind, 0.0), required - quality)
        missing = {
            kind: gap for kind, gap in missing.items() if self.quality_raises[kind] < MAX_QUALITY_RAISES
        }
        if not missing:
            return
        for kind, gap in missing.items():
            self.board_day.quality_margin[kind] += QUALITY_RAISE_FACTOR * gap
            self.quality_raises[kind] += 1
        for name in self.knob_trials:
            if config.rules[name].answers in missing:
                self.knob_trials[name], self.found[name] = [], []
        self.board_day.plan_answers(missing)

    def rows(self, name: str, twin: str) -> list[pa.Table]:
        """Return the trials of a planner, under its own name or that of an equal one (`twin`)."""
        config, ideas = self.settings.config, ablation_steps().get(twin)
        required: list[MetricRow] = [
            {"metric": "required_ratio", "value": self.target},
            {"metric": "required_quality", "value": config.quality.quality if config.quality else None},
        ]
        labels = {"what": config.rules[twin].what} | ({} if ideas is None else {"ideas": ", ".join(ideas)})
        tables = []
        for factor, figures in self.found[name]:
            tiers = [figure["tier"] for figure in figures if figure["metric"] == ATTAINED]
            strictest = self.settings.catalogue.strictest_tier(tiers) or ""
            variant = Variant(
                twin,
                self.settings,
                self.day,
                policy=twin,
                knobs={"factor": factor, **self._knobs(name, factor)},
                labels={**labels, "tier": strictest},
                resample=self.draw,
                purpose=TUNED,
            )
            tables.append(variant.rows([*figures, *required]))
        return tables


def required_attainment_ratio(planner_trials: Iterable[Sequence[TargetTrial]]) -> float:
    """Return the required fraction of each target: 1, or, where no planner reaches it, the weakest's best."""
    best = [max(trial.attained for trial in trials) for trials in planner_trials if trials]
    return min(best) if best and max(best) < 1 else 1.0


def write_resampled_day(settings: RunSettings, day: date, draw: int) -> None:
    """Replace the day's requests with resample number `draw` (models/traffic/day_resample.py)."""
    lake, trace = settings.lake, settings.trace
    old_files = lake.files("requests", trace=trace, day=day)
    table = lake.read("requests", trace=trace, day=day).drop_columns(["trace", "day"]).sort_by("arrived_at")
    midnight_us = np.datetime64(midnight(day).replace(tzinfo=None), "us").astype(np.int64)
    arrived_us = table["arrived_at"].cast(pa.int64()).to_numpy() - midnight_us
    rng = np.random.default_rng([settings.config.trace.seed, day.toordinal(), draw])
    rows, at_us = resample_arrivals(arrived_us, rng)
    table = table.take(pa.array(rows))
    new_columns = {
        "arrived_at": pa.array(midnight_us + at_us).cast(TIMESTAMP),
        "request_id": pa.array(np.arange(rows.size, dtype=np.uint64)),
    }
    for name, column in new_columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    for file in old_files:
        lake.remove(file)
    lake.write("requests", table, trace=trace, day=day)
    build_demand(lake, trace, day)
