"""Dependence between the levels of apps: a Gaussian copula of the innovations of their processes.

Recorded apps can offset each other, or rise together, by more than the hour of the week explains. The
correlation of two apps is that of the normal scores of their hours about their seasons. Hours have a memory,
so two apps have few independent hours, and most correlations are chance. Each is shrunk towards zero by its
standard error (Fisher 1921). The variance of the sum of all apps is estimated by itself, because it can be
certain where no pair is: of ten apps with a constant sum each pair has a correlation of only -1/9.
"""

from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats, Ints

MOST_DEPENDENT = 200  # apps, those whose levels vary most; it bounds memory and time
SIGMAS = 2.0  # standard errors below which nothing of a correlation is left
MOST_CORRELATION = 0.999


class Memory(NamedTuple):
    """Memory of the processes of apps about their seasons, each of shape (apps,)."""

    slow_share: Floats  # share of the slow part in the variance
    slow_hours: Floats  # correlation time
    fast_hours: Floats  # correlation time


class Dependence(NamedTuple):
    """Correlated innovations: those of `apps` are `root` times independent ones; others are independent."""

    apps: Ints  # (K,)
    root: Floats  # (K, K) symmetric; its square is the correlation

    def correlate(self, steps: Floats) -> Floats:
        """Return innovations, shape (apps, ...), with this correlation from independent ones."""
        if not self.apps.size:
            return steps
        correlated = steps.copy()
        correlated[self.apps] = np.tensordot(self.root, steps[self.apps], axes=1)
        return correlated


def fit_dependence(residuals: Floats, memory: Memory, weight: Floats) -> Dependence:
    """Fit the dependence of apps to their hours.

    Parameters
    ----------
    residuals : Floats
        Normal scores about the season, shape (apps, hours); nan where unknown.
    weight : Floats
        Standard deviation of the requests of an hour about their season, shape (apps,).
    """
    some = np.flatnonzero((np.nan_to_num(residuals) != 0).any(axis=1) & (weight > 0))
    some = np.sort(some[np.argsort(-weight[some], kind="stable")[:MOST_DEPENDENT]])
    memory = Memory(*(values[some] for values in memory))
    correlation, hours = _correlations(residuals[some])
    independent = _independent_hours(hours, residuals.shape[1], memory)
    target = _shrink(correlation, independent, weight[some])
    innovations = np.clip(target / _reach(memory), -MOST_CORRELATION, MOST_CORRELATION)
    np.fill_diagonal(innovations, 1.0)
    dependent = np.flatnonzero((innovations != np.eye(some.size)).any(axis=1))
    return Dependence(some[dependent], correlation_root(innovations[np.ix_(dependent, dependent)]))


def correlation_root(matrix: Floats) -> Floats:
    """Return the symmetric root of the nearest correlation matrix, up to scaling; both (K, K).

    Negative eigenvalues become zero, then the rows are scaled, so that the diagonal of the square is 1.
    """
    values, vectors = np.linalg.eigh(matrix)
    near = (vectors * np.maximum(values, 0.0)) @ vectors.T
    scale = np.sqrt(np.diag(near))
    values, vectors = np.linalg.eigh(near / np.outer(scale, scale))
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


def _correlations(residuals: Floats) -> tuple[Floats, Floats]:
    """Return the correlation of each pair over the hours that both have, and their number; (apps, apps)."""
    known = ~np.isnan(residuals)
    mean = np.where(known, residuals, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    about = np.where(known, residuals - mean[:, None], 0.0)
    square = about**2 @ known.T.astype(float)
    scale = np.sqrt(square * square.T)
    correlation = np.divide(about @ about.T, scale, out=np.zeros_like(scale), where=scale > 0)
    return correlation, known.astype(float) @ known.T.astype(float)


def _independent_hours(hours: Floats, record: int, memory: Memory) -> Floats:
    """Return how many independent hours the common ones of each pair are worth, shape (apps, apps).

    The variance of a correlation of two series is that of independent hours, times 1 + 2 x the sum of the
    products of their autocorrelations (Bartlett 1935).
    """
    lags = np.arange(1, max(record, 2))
    slow, fast = (np.exp(-lags / part[:, None]) for part in memory[1:])
    decay = memory.slow_share[:, None] * slow + (1 - memory.slow_share[:, None]) * fast
    return hours / (1 + 2 * (decay * (1 - lags / lags.size).clip(0)) @ decay.T)


def _shrink(correlation: Floats, independent: Floats, weight: Floats) -> Floats:
    """Return the correlations that the record proves, shape (apps, apps): of pairs, then of the sum."""
    fisher = np.arctanh(np.clip(correlation, -MOST_CORRELATION, MOST_CORRELATION))
    error = 1 / np.sqrt(np.maximum(independent - 3, 1e-9))
    pairs = correlation * _proven(fisher, error)
    np.fill_diagonal(pairs, 1.0)
    part = weight / max(float(np.sqrt(weight @ weight)), 1e-300)
    squares = np.outer(part**2, part**2)
    np.fill_diagonal(squares, 0.0)
    if squares.sum() == 0:
        return pairs
    rest = correlation - pairs
    np.fill_diagonal(rest, 0.0)
    beyond = part @ rest @ part
    chance = np.sqrt(2 * (squares / np.maximum(independent, 1.0)).sum())
    beyond *= _proven(np.array(beyond), np.array(chance))
    shared = np.outer(part, part)
    np.fill_diagonal(shared, 0.0)
    return pairs + beyond / squares.sum() * shared


def _proven(found: Floats, error: Floats) -> Floats:
    """Return the share of each value that is beyond its standard error (positive part of James-Stein)."""
    square = found**2
    return np.maximum(
        1 - np.divide((SIGMAS * error) ** 2, square, out=np.ones_like(square), where=square > 0), 0.0
    )


def _reach(memory: Memory) -> Floats:
    """Return the correlation of two processes with equal innovations, shape (apps, apps), at most 1."""
    reached = np.zeros((memory.slow_share.size,) * 2)
    shares = (memory.slow_share, 1 - memory.slow_share)
    for share, hours in zip(shares, memory[1:], strict=True):
        kept = np.exp(-1 / hours)
        fresh = np.sqrt(1 - kept**2)
        reached += np.sqrt(np.outer(share, share)) * np.outer(fresh, fresh) / (1 - np.outer(kept, kept))
    return reached
