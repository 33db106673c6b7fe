"""Walks over the series of a trace, read with their calendar; the slow methods in two processes."""

import signal
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from assets.demand import demand_matrix
from assets.settings import Settings, Step
from models.calendar import factors, phases
from models.forecast import SLOW
from models.forecast.backtest import Clock, Walk, joined, walk
from models.forecast.method import Floats, Ints
from models.forecast.predict import warm

PROCESSES = 2
SERIES_AT_ONCE = 2  # of a slow method: pieces small enough for both processes to end together


class Panel(NamedTuple):
    """The series of a trace, llm by llm and region by region, from the first day of a history."""

    demand: Floats  # interactive input tokens/s, shape (series, buckets)
    phase: Ints  # (series, buckets + horizon)
    factor: Floats  # (series, buckets + horizon)


class Piece(NamedTuple):
    """A method and the series that it walks in one go."""

    method: str
    first_series: int
    end_series: int


def read_panel(settings: Settings, first: date, last: date, horizon: int) -> Panel:
    """The interactive demand of whole days, both ends included, and what the calendar says of them."""
    minutes, calendar = settings.config.forecast.bucket_minutes, settings.config.calendar
    _, interactive, _ = demand_matrix(settings.lake, settings.trace, first, last, minutes, settings.catalogue)
    demand = interactive.reshape(-1, interactive.shape[-1])
    buckets = demand.shape[1] + horizon
    names = [(llm, region) for llm in settings.catalogue.llms for region in settings.catalogue.regions]
    by_region = {r: phases(calendar, first, minutes, buckets, r) for r in settings.catalogue.regions}
    phase = np.array([by_region[region] for _, region in names])
    factor = np.array([factors(calendar, first, minutes, buckets, *name) for name in names])
    return Panel(demand, phase, factor)


def pieces_of(methods: Iterable[str], series: int) -> list[Piece]:
    """A fast method does all series at once, a slow one SERIES_AT_ONCE."""
    width = {method: SERIES_AT_ONCE if method in SLOW else max(series, 1) for method in methods}
    return [Piece(m, at, at + width[m]) for m in width for at in range(0, series, width[m])]


def walk_all(panel: Panel, clock: Clock, pieces: Iterable[Piece], done: Step) -> dict[str, Walk]:
    """Walk all pieces and join those of a method; `clock` is the one that predictions are asked for."""
    walks: dict[Piece, Walk] = {}
    with ProcessPoolExecutor(PROCESSES, get_context("spawn"), _leave_interrupts) as workers:
        waiting = {workers.submit(walk_piece, panel, clock, p): p for p in pieces if p.method in SLOW}
        try:
            for piece in pieces:
                if piece.method not in SLOW:
                    walks[piece] = walk_piece(panel, clock, piece)
                    done(len(walks))
            for future in as_completed(waiting):
                walks[waiting[future]] = future.result()
                done(len(walks))
        except BaseException:  # Ctrl-C: what has not begun never will
            workers.shutdown(wait=False, cancel_futures=True)
            raise
    by_method: dict[str, list[Walk]] = {}
    for piece in sorted(walks, key=lambda piece: piece.first_series):
        by_method.setdefault(piece.method, []).append(walks[piece])
    return {method: joined(parts) for method, parts in by_method.items()}


def walk_piece(panel: Panel, clock: Clock, piece: Piece) -> Walk:
    """Walk one method over some series."""
    some = slice(piece.first_series, piece.end_series)
    clock = warm(clock, piece.method)
    return walk(panel.demand[some], piece.method, clock, panel.phase[some], panel.factor[some])


def _leave_interrupts() -> None:
    """Ctrl-C is the main process's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
