"""Errors of computed profiles on measured runs of vLLM, by kind: their laws, and how much they cover.

An error is log(measured / replayed): of TPOT for the law of decode, of TTFT for that of prefill. What is
fitted to runs (the package's correction, the roofline's coefficients) is fitted without the llm of a run.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache

import measurements
import numpy as np
import pandas as pd
import wall_points
from roofline_fit import Closed, fit_efficiency, take

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.composed_profiles import compose_profile
from fleetcast.models.latency.latency_errors import NINETY_SIGMAS
from fleetcast.models.latency.roofline import roofline_profile
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import (
    BACKENDS,
    VLLM,
    Efficiency,
    ErrorLaw,
    LatencyProfile,
)

FITTED_NAMES = {"Qwen3-235B-A22B-FP8": "Qwen3-235B-A22B"}  # of the wall, in the fit of the roofline
OTHER_BACKENDS = [backend for backend in BACKENDS if backend != VLLM]
COVERED_SHARE = 0.9  # of runs in an interval
MOST_OVER_ROOFLINE = (1.0, 1.1, 1.2, 1.3, 1.5, 2.0)  # candidates of the limit of mixtures
REPLAYED = ["ttft_replayed_s", "tpot_replayed_s"]
LIMIT = load_catalogue().engine.mixture_most_over_roofline
LIMITS_WITHOUT = {  # the limit fitted without an llm (tests/bench/wall_fit.py prints it)
    "MiniMax-M2.5": 1.3,
    "Kimi-K2.5": 1.1,
    "Qwen3-235B-A22B-FP8": 1.2,
    "gpt-oss-120b": 1.2,
}


def replay_limited(runs: pd.DataFrame, most_of: Callable[[str], float]) -> pd.DataFrame:
    """Return the closed loops of mixtures, replayed with a limit by llm over rooflines fitted without it.

    Architectures that the roofline does not know are left out.
    """

    def of_run(run: tuple) -> LatencyProfile:
        profile, (llm, precision, system) = wall_points.silicon_profile(run), run[:3]
        efficiency = efficiency_without(FITTED_NAMES.get(llm, llm))
        arch = wall_points.run_llm(llm, precision)
        return wall_points.limited(profile, arch, system, most_of(llm), efficiency)

    return wall_points.replay_silicon(runs[~runs["is_dense"].astype(bool)], of_run)


def fit_limits(loops: pd.DataFrame) -> dict[str, float]:
    """Return the limit of mixtures fitted to all llms, by "", and without each llm, by its name.

    The candidate with the least error of TPOT, mean over llms of their medians. `loops` of all engines: few
    llms ran on vLLM, and each engine's kernels are timed apart.
    """
    medians = {}
    for most in MOST_OVER_ROOFLINE:
        runs = replay_limited(loops, lambda _, most=most: most)
        medians[most] = (runs["tpot_replayed_s"] / runs["tpot_s"] - 1).abs().groupby(runs["llm"]).median()
    table = pd.DataFrame(medians)
    return {llm: float(table.drop(index=llm, errors="ignore").mean().idxmin()) for llm in ("", *table.index)}


def package_runs(loops: pd.DataFrame, stages: pd.DataFrame) -> pd.DataFrame:
    """Return the runs with the package's correction, fitted without their llm; errors as of `with_errors`.

    Mixtral-8x7B, of which there are stages alone, is far below the limit of mixtures.

    `loops`, `stages`: of vLLM, replayed without correction.
    """
    both = pd.concat([loops, stages], ignore_index=True)
    dense = both[both["is_dense"].astype(bool)]
    steps_s = wall_points.left_out_steps(dense).groupby(dense["llm"]).first()
    step_s = loops["llm"].map(steps_s).fillna(0.0).to_numpy()
    added_s = wall_points.added_step_s(loops, step_s)
    own = loops.assign(tpot_replayed_s=loops["tpot_replayed_s"] + added_s)
    own.update(replay_limited(loops, LIMITS_WITHOUT.__getitem__)[REPLAYED])
    return with_errors(own, corrected_stages(steps_s), "package")


def backend_runs(loops: pd.DataFrame, backend: str) -> pd.DataFrame:
    """Return the closed loops of another engine than vLLM: only the limit of mixtures is fitted to them.

    `loops`: of all engines, replayed without correction.
    """
    own = loops[loops["backend"] == backend].copy()
    own.update(replay_limited(own, lambda llm: LIMITS_WITHOUT.get(llm, LIMIT))[REPLAYED])
    return with_errors(own, None, backend)


def corrected_stages(steps_s: Mapping[str, float] | pd.Series) -> pd.DataFrame:
    """Return the stages replayed with the correction of their llm, `steps_s` by llm; mixtures have none."""
    return wall_points.replay_stages(lambda llm: float(steps_s.get(llm, 0.0)))


def composed_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the closed loops `runs` and the stages that have a composed profile, with errors."""
    return _replay_estimate(runs[runs["is_dense"]], "composed", lambda _: load_catalogue())


def roofline_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the closed loops `runs` and the stages by rooflines fitted without their llm, with errors."""
    return _replay_estimate(
        runs,
        "roofline",
        lambda llm: dataclasses.replace(
            load_catalogue(), efficiency=efficiency_without(FITTED_NAMES.get(llm, llm))
        ),
    )


def _replay_estimate(
    runs: pd.DataFrame, source: str, catalogue_of: Callable[[str], Catalogue]
) -> pd.DataFrame:
    estimate = {"composed": compose_profile, "roofline": roofline_profile}[source]

    def of_run(run: tuple) -> LatencyProfile:
        llm, precision, system, _, tp, _, _ = run
        arch = wall_points.run_llm(llm, precision)
        return wall_points.profile_of_llm(arch, system, tp, estimate, catalogue_of(llm))

    def of_stage(stage: wall_points.Stage) -> LatencyProfile:
        arch = wall_points.stage_llm(stage)
        return wall_points.profile_of_llm(arch, "h100_sxm", stage.tp, estimate, catalogue_of(stage.llm))

    loops = wall_points.replay_silicon(runs, of_run)
    return with_errors(loops, wall_points.replay_stages(profile_of=of_stage), source)


@cache
def efficiency_without(llm: str) -> Efficiency:
    """Return the roofline's coefficients fitted without an llm; the shipped ones if it is not in the fit."""
    catalogue = load_catalogue()
    rows, closed = _fitted_runs()
    is_other = (rows["llm"] != llm).to_numpy()
    if is_other.all():
        return catalogue.efficiency
    groups = (rows["llm"] + rows["gpu"])[is_other]
    return fit_efficiency(take(closed, is_other), groups.tolist(), f"all but {llm}")


@cache
def _fitted_runs() -> tuple[pd.DataFrame, Closed]:
    """Return the runs to which the roofline is fitted, once for all llms that are left out."""
    return measurements.silicon(load_catalogue())


def with_errors(loops: pd.DataFrame, stages: pd.DataFrame | None, source: str) -> pd.DataFrame:
    """Return the runs with source, kind, tpot_log, and of stages ttft_log and e2e_log.

    TTFT and E2E of a stage have the seconds of the front end that the other llms lack.
    """
    runs = loops
    if stages is not None:
        front_s = wall_points.left_out_front_s(stages)
        logs = {
            f"{metric}_log": np.log(stages[f"{metric}_s"] / (stages[f"{metric}_replayed_s"] + front_s))
            for metric in ("ttft", "e2e")
        }
        runs = pd.concat([loops, stages.assign(**logs)], ignore_index=True)
    runs = runs.assign(tpot_log=np.log(runs["tpot_s"].astype(float) / runs["tpot_replayed_s"].astype(float)))
    kind = np.where(runs["is_dense"].astype(bool), f"{source}_dense", f"{source}_mixture")
    return runs.assign(source=source, kind=kind if source != "composed" else source)


def fit_law(errors: Floats) -> ErrorLaw:
    """Return the law whose bias is the median, and whose 90 % interval is as wide as the errors need."""
    bias = float(np.median(errors))
    return ErrorLaw(bias, float(np.quantile(np.abs(errors - bias), COVERED_SHARE)) / NINETY_SIGMAS)


def fit_decode(runs: pd.DataFrame, kind: str) -> ErrorLaw:
    """Return the law of decode of a kind of profiles; each run counts once."""
    return fit_law(runs.loc[runs["kind"] == kind, "tpot_log"].to_numpy())


def fit_prefill(runs: pd.DataFrame, kind: str) -> ErrorLaw:
    """Return the law of prefill: TTFT of the stages, dense llms and mixtures together.

    There are 12 of four llms, and most of their prompts are cached, so that they say little about long
    prompts: prefill is not held to be surer than decode. Engines without stages have the law of decode,
    without its bias.
    """
    if "ttft_log" not in runs or runs.loc[runs["kind"] == kind, "source"].isin(OTHER_BACKENDS).any():
        return dataclasses.replace(fit_decode(runs, kind), bias=0.0)
    is_of_source = runs["source"] == kind.partition("_")[0]
    law = fit_law(runs.loc[is_of_source, "ttft_log"].dropna().to_numpy())
    return dataclasses.replace(law, sigma=max(law.sigma, fit_decode(runs, kind).sigma))


def is_covered(runs: pd.DataFrame, column: str, error: str = "tpot_log") -> pd.Series:
    """Return whether an error is in the 90 % interval of the runs of its kind with other values of `column`.

    `error`: tpot_log and e2e_log are held against the law of decode, ttft_log against that of prefill. Runs
    without that error, or of a kind that no other value of `column` has, are left out.
    """
    fit = fit_prefill if error == "ttft_log" else fit_decode
    found = []
    for (kind, value), own in runs.dropna(subset=[error]).groupby(["kind", column]):
        others = runs[runs[column] != value]
        if (others["kind"] == kind).any():
            law = fit(others, kind)
            found.append((own[error] - law.bias).abs() <= NINETY_SIGMAS * law.sigma)
    return pd.concat(found)
