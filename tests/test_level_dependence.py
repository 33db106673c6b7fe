"""Apps that offset each other or rise together do so in made traffic too; independent ones stay so."""

from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcast.models.traffic import level_dependence
from fleetcast.models.traffic.app_level_fit import fit_app_levels
from fleetcast.models.traffic.app_levels import AppLevels, draw_level_stretch
from fleetcast.models.traffic.level_dependence import Dependence, Memory, correlation_root, fit_dependence

HOURS, APPS = 336, 10
FIRST = date(2024, 1, 1)  # a Monday


def walks(rng: np.random.Generator, apps: int, hours: float, length: int = HOURS) -> np.ndarray:
    """First-order autoregressive normals with this correlation time, shape (apps, length)."""
    kept, value, path = np.exp(-1 / hours), rng.standard_normal(apps), np.empty((apps, length))
    for hour in range(length):
        value = kept * value + np.sqrt(1 - kept**2) * rng.standard_normal(apps)
        path[:, hour] = value
    return path


def fit(rng: np.random.Generator, z: np.ndarray) -> AppLevels:
    counts = rng.poisson(1000 * np.exp(0.4 * z)).astype(float)
    return fit_app_levels(counts, np.arange(z.shape[1]) % 168)


def made_hours(levels: AppLevels, stretches: int = 12) -> np.ndarray:
    """Levels of a stretch for each of several seeds, shape (seeds, apps, hours)."""
    made = [draw_level_stretch(levels, seed, FIRST, FIRST, 0).levels for seed in range(stretches)]
    return np.array(made).reshape(stretches, len(made[0]), -1)


def test_the_correlation_of_made_levels_tends_to_the_fitted_one() -> None:
    """Two apps, each with its own memory: one falls as the other rises."""
    rng = np.random.default_rng(1)
    common, own = walks(rng, 1, 3.0, 8000), walks(rng, 2, 3.0, 8000)
    z = 0.9 * common * [[1.0], [-1.0]] + np.sqrt(1 - 0.81) * own
    made = made_hours(fit(rng, z), 40)
    found = np.mean([np.corrcoef(np.log(levels))[0, 1] for levels in made])
    assert found == pytest.approx(np.corrcoef(z)[0, 1], abs=0.06)


@pytest.mark.parametrize("hours", [1.0, 8.0])
def test_apps_with_a_constant_sum_are_proven_by_their_sum(hours: float) -> None:
    """No pair of ten is certain, each has -1/9; the sum is. Independent apps keep the variance of theirs."""
    rng = np.random.default_rng(2)
    z = walks(rng, APPS, hours)
    spread = {
        name: made_hours(fit(rng, part)).sum(axis=1).std(axis=1).mean()
        for name, part in (
            ("offset", z - z.mean(axis=0)),
            ("independent", z),
            ("together", 0.7 * z + 0.7 * z[0]),
        )
    }
    assert spread["offset"] < 0.6 * spread["independent"]
    assert spread["together"] > 1.4 * spread["independent"]


@pytest.mark.parametrize("seed", range(5))
def test_independent_apps_stay_independent(seed: int) -> None:
    """What is left of their chance correlations is small, and long records leave nothing."""
    rng = np.random.default_rng(seed)
    dependence = fit(rng, walks(rng, APPS, 4.0)).dependence
    left = dependence.root @ dependence.root - np.eye(dependence.apps.size)
    assert (left**2).sum() < 0.25 * APPS
    memory = Memory(np.zeros(APPS), np.full(APPS, 24.0), np.ones(APPS))
    none = fit_dependence(np.zeros((APPS, HOURS)), memory, np.ones(APPS))
    steps = rng.standard_normal((APPS, 2, 5))
    assert none.apps.size == 0
    assert none.correlate(steps) is steps


@given(st.permutations(range(5)), st.integers(0, 9))
@settings(max_examples=20)
def test_relabelled_apps_have_the_relabelled_outcome(order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    residuals = rng.standard_normal((5, 5)) @ rng.standard_normal((5, 200))
    residuals[0, :50] = np.nan
    memory = Memory(rng.uniform(0, 1, 5), rng.uniform(24, 96, 5), rng.uniform(0.3, 6, 5))
    weight, steps = rng.uniform(1, 2, 5), rng.standard_normal((5, 2, 7))
    first = fit_dependence(residuals, memory, weight)
    other = fit_dependence(residuals[order], Memory(*(part[order] for part in memory)), weight[order])
    assert other.correlate(steps[order]) == pytest.approx(first.correlate(steps)[order], abs=1e-6)


@given(st.integers(2, 6), st.integers(0, 99))
@settings(max_examples=30)
def test_the_root_is_of_a_correlation_and_keeps_one(apps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    free = np.clip(rng.normal(0, 0.8, (apps, apps)), -1, 1)
    free = np.tril(free, -1) + np.tril(free, -1).T + np.eye(apps)  # in general no correlation
    root = correlation_root(free)
    near = root @ root
    assert np.diag(near) == pytest.approx(1.0)
    assert np.linalg.eigvalsh(root).min() > -1e-9
    again = correlation_root(near)
    assert again @ again == pytest.approx(near, abs=1e-7)


@pytest.mark.parametrize("hours", [(2.0, 2.0), (1.0, 12.0)])
def test_processes_with_equal_innovations_reach_this_correlation(hours: tuple[float, float]) -> None:
    """Against the naive walk: the same steps through two memories."""
    kept = np.exp(-1 / np.array(hours))
    steps, value, path = np.random.default_rng(0).standard_normal(60_000), np.zeros(2), []
    for step in steps:
        value = kept * value + np.sqrt(1 - kept**2) * step
        path.append(value)
    memory = Memory(np.zeros(2), np.full(2, 24.0), np.array(hours))
    assert level_dependence._reach(memory)[0, 1] == pytest.approx(
        np.corrcoef(np.array(path).T)[0, 1], abs=0.02
    )


def test_the_largest_apps_depend_and_copies_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    z = np.repeat(walks(rng, 1, 2.0), 4, axis=0) + 0.3 * walks(rng, 4, 2.0)
    monkeypatch.setattr(level_dependence, "MOST_DEPENDENT", 3)
    memory = Memory(np.zeros(4), np.full(4, 24.0), np.full(4, 2.0))
    assert fit_dependence(z, memory, np.array([4.0, 1.0, 2.0, 3.0])).apps.tolist() == [0, 2, 3]
    levels = fit(rng, z)
    more = levels.with_copies(np.array([1]))
    assert more.dependence == levels.dependence
    steps = rng.standard_normal((5, 2, 3))
    assert np.array_equal(Dependence(*more.dependence).correlate(steps)[4], steps[4])
