"""Families of gaps between arrivals: distributions of mean 1 with one shape parameter."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats

GapShape = Floats | float

WEIBULL_NEWTON_STEPS = 8
WEIBULL_SHAPES = np.geomspace(0.04, 60.0, 400)  # shapes at which the variation of Weibull gaps is tabulated


class GapFamily(NamedTuple):
    """The functions of a family; gaps are (samples, gaps), shape parameters (samples,)."""

    shape_of: Callable[[Floats], Floats]  # fit: positive gaps -> shape parameter
    # (rng, shape parameter, size) -> gaps of mean 1; the shape parameter broadcasts to size
    draw: Callable[[np.random.Generator, GapShape, tuple[int, ...]], Floats]
    share_below: Callable[[Floats, Floats], Floats]  # distribution function: (gaps of mean 1, shape) -> share
    shape_of_cv: Callable[[Floats], Floats]  # coefficient of variation -> shape parameter


def draw_gaps(rng: np.random.Generator, family: str, shape: GapShape, size: tuple[int, ...]) -> Floats:
    """Sample gaps of mean 1, shape `size`, of a family of GAP_FAMILIES; `shape` broadcasts to `size`."""
    return GAP_FAMILIES[family].draw(rng, shape, size)


def shape_of_cv(family: str, cv: GapShape) -> Floats:
    """Return the shape parameter, same shape as `cv`, at which gaps have this coefficient of variation.

    It is 1 for exponential gaps, which have no parameter.
    """
    return GAP_FAMILIES[family].shape_of_cv(np.asarray(cv, dtype=float))


# --- gamma ---------------------------------------------------------------------------------------------


def gamma_shape(gaps: Floats) -> Floats:
    """Fit the gamma shape, (samples,), to gaps, (samples, gaps), by the closed form of Ye and Chen (2017)."""
    log_gaps, gaps_sum = np.log(gaps), gaps.sum(axis=1)
    size = gaps.shape[1]
    return size * gaps_sum / (size * (gaps * log_gaps).sum(axis=1) - log_gaps.sum(axis=1) * gaps_sum)


def _share_gamma(gaps: Floats, shape: Floats) -> Floats:
    """Return the share of a gamma distribution of mean 1 below each gap, (samples, gaps)."""
    from scipy.special import gammainc

    return gammainc(shape[:, None], shape[:, None] * gaps)


# --- Weibull -------------------------------------------------------------------------------------------


def weibull_shape(gaps: Floats) -> Floats:
    """Fit the Weibull shape, (samples,), to gaps, (samples, gaps), by maximum likelihood.

    Newton's method starts from the moments of the logarithms.
    """
    logs = np.log(gaps)
    logs = logs - logs.mean(axis=1, keepdims=True)
    shape = np.pi / np.sqrt(6) / logs.std(axis=1)
    for _ in range(WEIBULL_NEWTON_STEPS):
        powers = np.exp(shape[:, None] * logs)
        total = powers.sum(axis=1)
        first, second = ((powers * logs**n).sum(axis=1) / total for n in (1, 2))
        step = (first - 1 / shape) / (second - first**2 + 1 / shape**2)
        shape = np.maximum(shape - step, shape / 2)
    return shape


def weibull_scale(shape: GapShape) -> Floats:
    """Return the scale at which a Weibull distribution of this shape parameter has mean 1; same shape."""
    from scipy.special import gammaln

    return np.exp(-gammaln(1 + 1 / np.asarray(shape)))


def _share_weibull(gaps: Floats, shape: Floats) -> Floats:
    """Return the share below each gap, (samples, gaps), with the scale of highest likelihood."""
    power = gaps ** shape[:, None]
    return -np.expm1(-power / power.mean(axis=1, keepdims=True))


def _weibull_shape_of_cv(cv: Floats) -> Floats:
    """Interpolate the shape parameter in the table of WEIBULL_SHAPES, same shape as `cv`."""
    from scipy.special import gammaln

    # log(1 + cv^2) of each shape, falling
    log_squares = gammaln(1 + 2 / WEIBULL_SHAPES) - 2 * gammaln(1 + 1 / WEIBULL_SHAPES)
    return np.exp(np.interp(np.log1p(cv**2), log_squares[::-1], np.log(WEIBULL_SHAPES)[::-1]))


# --- lognormal -----------------------------------------------------------------------------------------


def _draw_lognormal(rng: np.random.Generator, sigma: GapShape, size: tuple[int, ...]) -> Floats:
    """Sample lognormal gaps of mean 1, shape `size`; `sigma` broadcasts to it."""
    return np.exp(sigma * rng.standard_normal(size) - np.square(sigma) / 2)


def _share_lognormal(gaps: Floats, sigma: Floats) -> Floats:
    """Return the share below each gap, (samples, gaps), with the scale of highest likelihood."""
    from scipy.special import ndtr

    logs = np.log(gaps)
    return ndtr((logs - logs.mean(axis=1, keepdims=True)) / sigma[:, None])


# --- hyperexponential: two phases with equal shares of the time ------------------------------------------


def _hyperexponential_shape_of_cv(cv: Floats) -> Floats:
    """Return the share of gaps in the short phase, 1/2 to 1, same shape as `cv`; cv below 1 counts as 1."""
    square = np.maximum(cv**2, 1.0)
    return (1 + np.sqrt((square - 1) / (square + 1))) / 2


def _hyperexponential_shape(gaps: Floats) -> Floats:
    """Fit the share of gaps in the short phase, (samples,), to gaps, (samples, gaps), by their CV."""
    return np.minimum(_hyperexponential_shape_of_cv(gaps.std(axis=1) / gaps.mean(axis=1)), 1 - 1e-9)


def _draw_hyperexponential(rng: np.random.Generator, short: GapShape, size: tuple[int, ...]) -> Floats:
    """Sample gaps of mean 1, shape `size`; `short`, the share of the short phase, broadcasts to it."""
    of_phase = np.where(rng.random(size) < short, short, 1 - np.asarray(short))
    return rng.standard_exponential(size) / (2 * of_phase)


def _share_hyperexponential(gaps: Floats, short: Floats) -> Floats:
    """Return the share below each gap, (samples, gaps); `short` has the shape (samples,)."""
    phases = (short[:, None], 1 - short[:, None])
    above = np.array([phase * np.exp(-2 * phase * gaps) for phase in phases])
    return 1 - above.sum(axis=0)


GAP_FAMILIES: dict[str, GapFamily] = {
    "exponential": GapFamily(
        lambda gaps: np.ones(len(gaps)),
        lambda rng, shape, size: rng.standard_exponential(size),
        lambda gaps, shape: -np.expm1(-gaps),
        np.ones_like,
    ),
    "gamma": GapFamily(
        gamma_shape,
        lambda rng, shape, size: rng.standard_gamma(shape, size) / shape,
        _share_gamma,
        lambda cv: 1 / cv**2,
    ),
    "weibull": GapFamily(
        weibull_shape,
        lambda rng, shape, size: weibull_scale(shape) * rng.weibull(shape, size),
        _share_weibull,
        _weibull_shape_of_cv,
    ),
    "lognormal": GapFamily(
        lambda gaps: np.log(gaps).std(axis=1),
        _draw_lognormal,
        _share_lognormal,
        lambda cv: np.sqrt(np.log1p(cv**2)),
    ),
    "hyperexponential": GapFamily(
        _hyperexponential_shape,
        _draw_hyperexponential,
        _share_hyperexponential,
        _hyperexponential_shape_of_cv,
    ),
}
