"""The laws of errors of computed profiles: their fit, and what they cover of runs that had no part in it."""

import numpy as np
import pandas as pd
import pytest
import wall_errors
import wall_points

from fleetcast.models.latency.latency_errors import NINETY_SIGMAS
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_entries import ErrorLaw

ENGINE = load_catalogue().engine
needs_wall = pytest.mark.skipif(
    not wall_points.SILICON.exists(), reason="no measured runs next to the project"
)


def runs_of(errors: dict[str, np.ndarray], kind: str = "composed") -> pd.DataFrame:
    """Runs of llms with these errors of TPOT; the first of each is a stage, whose TTFT has the same error."""
    rows = [
        {
            "llm": llm,
            "system": f"gpu {n % 2}",
            "kind": kind,
            "source": kind.partition("_")[0],
            "tpot_log": error,
        }
        | {"ttft_log": error if n == 0 else np.nan}
        for llm, own in errors.items()
        for n, error in enumerate(own)
    ]
    return pd.DataFrame(rows)


def test_a_law_has_nine_of_ten_of_its_errors_around_their_median() -> None:
    errors = np.random.default_rng(3).normal(0.2, 0.1, 4001)
    law = wall_errors.fit_law(errors)
    assert (law.bias, law.sigma) == pytest.approx((0.2, 0.1), rel=0.05)
    assert (np.abs(errors - law.bias) <= NINETY_SIGMAS * law.sigma).mean() == pytest.approx(0.9, abs=1e-3)
    mirrored = wall_errors.fit_law(-errors)
    assert (mirrored.bias, mirrored.sigma) == pytest.approx((-law.bias, law.sigma))


def test_prefill_is_not_held_to_be_surer_than_decode() -> None:
    wide, near = np.linspace(-0.5, 0.5, 11), np.array([0.1])
    runs = runs_of({"a": wide[::-1], "b": near, "c": near})
    decode, prefill = (fit(runs, "composed") for fit in (wall_errors.fit_decode, wall_errors.fit_prefill))
    assert (prefill.bias, prefill.sigma) == (0.1, decode.sigma)


def test_a_run_is_judged_by_the_others_alone() -> None:
    """A naive twin; and an llm that is far off lies outside, whatever its own runs say."""
    rng = np.random.default_rng(5)
    runs = runs_of({"a": rng.normal(0, 0.1, 60), "b": rng.normal(0.05, 0.1, 60), "far": np.full(30, 2.0)})
    for column in ("llm", "system"):
        inside = wall_errors.is_covered(runs, column)
        for row in runs.itertuples():
            others = runs.loc[runs[column] != getattr(row, column), "tpot_log"]
            bias = np.median(others)
            half = np.quantile(np.abs(others - bias), 0.9)
            assert inside[row.Index] == (abs(row.tpot_log - bias) <= half)
    by_llm = wall_errors.is_covered(runs, "llm").groupby(runs["llm"]).mean()
    assert by_llm["far"] == 0.0
    assert by_llm[["a", "b"]].min() > 0.9
    assert wall_errors.is_covered(runs, "llm", "ttft_log").tolist() == [True, True, False]


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    """The wall of vLLM, replayed with the profiles of all three sources."""
    loops, stages = wall_points.silicon_runs("vllm"), wall_points.replay_stages()
    sources = (
        wall_errors.package_runs(wall_points.replay_silicon(loops), stages),
        wall_errors.composed_runs(loops),
        wall_errors.roofline_runs(loops),
    )
    return pd.concat(sources, ignore_index=True)


@needs_wall
def test_the_shipped_laws_are_those_of_the_wall(runs: pd.DataFrame) -> None:
    """And half of the runs are slower than the bias says."""
    for kind in sorted(set(runs["kind"])):
        shipped = getattr(ENGINE, kind)
        for law, fit in (
            (shipped.decode, wall_errors.fit_decode),
            (shipped.prefill, wall_errors.fit_prefill),
        ):
            own = fit(runs, kind)
            assert (law.bias, law.sigma) == pytest.approx((own.bias, own.sigma), abs=2e-3), kind
        errors = runs.loc[runs["kind"] == kind, "tpot_log"]
        assert (errors > shipped.decode.bias).mean() == pytest.approx(0.5, abs=0.02), kind
    assert ENGINE.composed.decode.bias > 0.05  # composed profiles are too fast


@needs_wall
def test_nine_of_ten_runs_of_another_llm_lie_inside(runs: pd.DataFrame) -> None:
    """The figures of data/docs/explanation/accuracy.md, by llm and by GPU type left out."""
    shares = {
        column: wall_errors.is_covered(runs, column).groupby(runs["kind"]).mean()
        for column in ("llm", "system")
    }
    expected = {
        "composed": (0.92, 0.89),
        "package_dense": (0.94, 0.84),
        "package_mixture": (0.86, 0.89),
        "roofline_dense": (0.93, 0.89),
        "roofline_mixture": (0.85, 0.90),
    }
    found = {kind: (shares["llm"][kind], shares["system"][kind]) for kind in expected}
    for kind, pair in expected.items():
        assert found[kind] == pytest.approx(pair, abs=0.015), found
    for error, share in (("ttft_log", 0.94), ("e2e_log", 0.88)):
        assert wall_errors.is_covered(runs, "llm", error).mean() == pytest.approx(share, abs=0.02)
    without = {
        kind: abs_inside(runs, kind, ErrorLaw(0.0, getattr(ENGINE, kind).decode.sigma)) for kind in expected
    }
    assert without["composed"] < 0.9  # as composed profiles are too fast by 6 % in the median


def abs_inside(runs: pd.DataFrame, kind: str, law: ErrorLaw) -> float:
    """The share of a kind's errors in the 90 % interval of a law."""
    errors = runs.loc[runs["kind"] == kind, "tpot_log"]
    return float(((errors - law.bias).abs() <= NINETY_SIGMAS * law.sigma).mean())
