"""Walks over the series of a trace with its calendar; slow methods run in one process per core."""

import os
import signal
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from multiprocessing import active_children, get_context
from typing import NamedTuple

import numpy as np

from fleetcast.assets.demand.demand import read_app_demand, read_demand_matrix
from fleetcast.assets.lake.process_resources import usable_cores
from fleetcast.assets.lake.settings import HOURS_OF_DAY, RunSettings, Step
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.forecast import SLOW_METHODS
from fleetcast.models.forecast.backtest import BacktestClock, Walk, join_walks, walk_forward
from fleetcast.models.forecast.event_factors import event_demand_factors
from fleetcast.models.forecast.walk_predictions import Parts, sum_part_forecasts, warm_up_clock
from fleetcast.models.world.calendar import event_occurrences, week_phases

SLOW_SERIES_PER_PIECE = 2  # small pieces, so that all processes end at about the same time


class Panel(NamedTuple):
    """The series of a trace from the first day of a history: tier by tier, llm by llm, region by region."""

    names: list[tuple[str, str, str]]  # tier, llm and region of each series
    demand: Floats  # tokens or requests per second, shape (series, buckets)
    phase: Ints  # bucket of the week that each bucket behaves as, (series, buckets + horizon)
    factor: Floats  # demand factor of known events, (series, buckets + horizon)
    parts: Parts | None = None  # the large apps of each series and the rest; None: forecast without them

    def end_at(self, known: int) -> "Panel":
        """Return the panel with this number of buckets, and one unknown bucket: the only cutoff of a walk."""
        edge = ((0, 0), (0, 1))

        def end(demand: Floats) -> Floats:
            return np.pad(demand[:, :known], edge, constant_values=np.nan)

        parts = self.parts and self.parts._replace(demand=end(self.parts.demand))
        return self._replace(demand=end(self.demand), parts=parts)


class WalkPiece(NamedTuple):
    """A method and the range of series that it walks together."""

    method: str
    first_series: int
    end_series: int


def read_panel(
    settings: RunSettings,
    days: tuple[date, date],
    minutes: int,
    horizon: int,
    tiers: Sequence[str],
    measure: str,
    until: int | None = None,
    parts_until: int | None = None,
) -> Panel:
    """Read the demand of whole days, both ends included, in buckets of `minutes`, with its calendar.

    horizon : buckets after the last day that the calendar covers too
    tiers : tiers of the catalogue, or INTERACTIVE for the sum of all interactive tiers
    until : number of known buckets: later ones are set to nan. None: all.
    parts_until : number of buckets that choose the apps of `Panel.parts`: those before the first cutoff.
        None: no parts. Only for the interactive input tokens.
    """
    calendar, catalogue = settings.config.calendar, settings.catalogue
    found = read_demand_matrix(settings.lake, settings.trace, *days, minutes, catalogue, measure)
    demand = np.concatenate([found.tier_series(tier).reshape(-1, found.bucket_start.size) for tier in tiers])
    parts = None
    if parts_until is not None:
        start = found.bucket_start
        parts = Parts(*read_app_demand(settings.lake, settings.trace, start, minutes, parts_until, catalogue))
    if until is not None:
        for rates in (demand, *([parts.demand] if parts else ())):
            rates[:, until:] = np.nan
    buckets = demand.shape[1] + horizon
    names = [(tier, llm, region) for tier in tiers for llm in catalogue.llms for region in catalogue.regions]
    by_region = {r: week_phases(calendar, days[0], minutes, buckets, r) for r in catalogue.regions}
    phase = np.array([by_region[region] for _, _, region in names])
    season = HOURS_OF_DAY * 60 // minutes
    known = [event_occurrences(calendar, days[0], minutes, buckets, llm, region) for _, llm, region in names]
    factor = np.array(
        [event_demand_factors(*each, season, lead=season) for each in zip(known, demand, phase, strict=True)]
    )
    return Panel(names, demand, phase, factor, parts)


def split_into_pieces(methods: Iterable[str], series: int) -> list[WalkPiece]:
    """Split walks into pieces: all series for a fast method, SLOW_SERIES_PER_PIECE for a slow one."""
    width = {
        method: SLOW_SERIES_PER_PIECE if method in SLOW_METHODS else max(series, 1) for method in methods
    }
    return [WalkPiece(m, at, at + width[m]) for m in width for at in range(0, series, width[m])]


def walk_pieces(
    panel: Panel, clock: BacktestClock, pieces: Iterable[WalkPiece], done: Step
) -> tuple[dict[str, Walk], dict[str, float]]:
    """Walk all pieces; return each method's walk and its CPU seconds.

    `clock` has the cutoffs to be predicted; the warm-up of each method is added.
    """
    walks: dict[WalkPiece, tuple[Walk, float]] = {}
    with ProcessPoolExecutor(usable_cores(), get_context("spawn"), _leave_interrupts) as workers:
        waiting = {workers.submit(walk_piece, panel, clock, p): p for p in pieces if p.method in SLOW_METHODS}
        try:
            for piece in pieces:
                if piece.method not in SLOW_METHODS:
                    walks[piece] = walk_piece(panel, clock, piece)
                    done(len(walks))
            for future in as_completed(waiting):
                walks[waiting[future]] = future.result()
                done(len(walks))
        except BaseException:  # also for an interruption: cancel pending pieces, kill running ones
            workers.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.kill()
            raise
    parts: dict[str, list[Walk]] = {}
    cpu_s: dict[str, float] = {}
    for piece in sorted(walks, key=lambda piece: piece.first_series):
        part, spent_s = walks[piece]
        parts.setdefault(piece.method, []).append(part)
        cpu_s[piece.method] = cpu_s.get(piece.method, 0.0) + spent_s
    return {method: join_walks(walked) for method, walked in parts.items()}, cpu_s


def forecast_parts(panel: Panel, clock: BacktestClock, methods: Iterable[str]) -> dict[str, Floats]:
    """Return the sum of the parts' forecasts by each ensemble among the methods; nothing without parts.

    Rates of shape (series, cutoffs, horizon), from the first cutoff of the warm-up on.
    """
    if panel.parts is None:
        return {}
    return sum_part_forecasts(panel.parts, panel.phase, panel.factor, clock, methods)


def walk_piece(panel: Panel, clock: BacktestClock, piece: WalkPiece) -> tuple[Walk, float]:
    """Walk one method over some series; return the walk and its CPU seconds."""
    part, begun_s = slice(piece.first_series, piece.end_series), _cpu_s()
    clock = warm_up_clock(clock, piece.method)
    walk = walk_forward(panel.demand[part], piece.method, clock, panel.phase[part], panel.factor[part])
    return walk, _cpu_s() - begun_s


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its child processes, such as Prophet's engine."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def _leave_interrupts() -> None:
    """Ignore Ctrl-C in a worker: the main process handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
