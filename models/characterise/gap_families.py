"""Families of gaps between arrivals: each has mean 1 and one shape."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fleetcast.models.aliases import Floats

GapShape = Floats | float

WEIBULL_NEWTON_STEPS = 8
WEIBULL_SHAPES = np.geomspace(0.04, 60.0, 400)  # of Weibull gaps, at which their variation is tabled


class GapFamily(NamedTuple):
    """What is known of a family; gaps are of shape (samples, gaps), shapes of shape (samples,)."""

    shape_of: Callable[[Floats], Floats]  # of positive gaps
    draw: Callable[
        [np.random.Generator, GapShape, tuple[int, ...]], Floats
    ]  # gaps of mean 1; the shape broadcasts
    share_below: Callable[[Floats, Floats], Floats]  # share of gaps of mean 1 below each
    shape_of_cv: Callable[[Floats], Floats]  # at which the gaps have this coefficient of variation


def draw_gaps(rng: np.random.Generator, family: str, shape: GapShape, size: tuple[int, ...]) -> Floats:
    """Gaps of mean 1 of a family of FAMILIES; a shape per gap broadcasts to `size`."""
    return GAP_FAMILIES[family].draw(rng, shape, size)


def shape_of_cv(family: str, cv: GapShape) -> Floats:
    """The shape at which gaps of that family have this coefficient of variation; 1 for exponential gaps."""
    return GAP_FAMILIES[family].shape_of_cv(np.asarray(cv, dtype=float))


# --- gamma ---------------------------------------------------------------------------------------------


def gamma_shape(gaps: Floats) -> Floats:
    """Shape of the gamma distribution, shape (samples,): the closed form of Ye and Chen (2017)."""
    log_gaps, gaps_sum = np.log(gaps), gaps.sum(axis=1)
    size = gaps.shape[1]
    return size * gaps_sum / (size * (gaps * log_gaps).sum(axis=1) - log_gaps.sum(axis=1) * gaps_sum)


def _share_gamma(gaps: Floats, shape: Floats) -> Floats:
    from scipy.special import gammainc

    return gammainc(shape[:, None], shape[:, None] * gaps)


# --- Weibull -------------------------------------------------------------------------------------------


def weibull_shape(gaps: Floats) -> Floats:
    """Shape of the likeliest Weibull distribution, shape (samples,): Newton, begun from the log-moments."""
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
    """Scale at which a Weibull distribution of that shape has mean 1."""
    from scipy.special import gammaln

    return np.exp(-gammaln(1 + 1 / np.asarray(shape)))


def _share_weibull(gaps: Floats, shape: Floats) -> Floats:
    """Its scale is the one of highest likelihood, not that of the mean."""
    power = gaps ** shape[:, None]
    return -np.expm1(-power / power.mean(axis=1, keepdims=True))


def _weibull_shape_of_cv(cv: Floats) -> Floats:
    from scipy.special import gammaln

    of_shapes = gammaln(1 + 2 / WEIBULL_SHAPES) - 2 * gammaln(
        1 + 1 / WEIBULL_SHAPES
    )  # log(1 + cv^2), falling
    return np.exp(np.interp(np.log1p(cv**2), of_shapes[::-1], np.log(WEIBULL_SHAPES)[::-1]))


# --- lognormal -----------------------------------------------------------------------------------------


def _draw_lognormal(rng: np.random.Generator, sigma: GapShape, size: tuple[int, ...]) -> Floats:
    return np.exp(sigma * rng.standard_normal(size) - np.square(sigma) / 2)


def _share_lognormal(gaps: Floats, sigma: Floats) -> Floats:
    """Its scale is the one of highest likelihood, not that of the mean."""
    from scipy.special import ndtr

    logs = np.log(gaps)
    return ndtr((logs - logs.mean(axis=1, keepdims=True)) / sigma[:, None])


# --- hyperexponential: two phases that carry the same share of the time ----------------------------------


def _hyperexponential_shape_of_cv(cv: Floats) -> Floats:
    """Share of the gaps in the short phase, 1/2 to 1; a variation below 1 is out of its reach."""
    square = np.maximum(cv**2, 1.0)
    return (1 + np.sqrt((square - 1) / (square + 1))) / 2


def _hyperexponential_shape(gaps: Floats) -> Floats:
    return np.minimum(_hyperexponential_shape_of_cv(gaps.std(axis=1) / gaps.mean(axis=1)), 1 - 1e-9)


def _draw_hyperexponential(rng: np.random.Generator, short: GapShape, size: tuple[int, ...]) -> Floats:
    of_phase = np.where(rng.random(size) < short, short, 1 - np.asarray(short))
    return rng.standard_exponential(size) / (2 * of_phase)


def _share_hyperexponential(gaps: Floats, short: Floats) -> Floats:
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
