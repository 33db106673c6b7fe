"""The wall: replays of aiconfigurator-core's profiles against measured runs of engines."""

from itertools import combinations

import numpy as np
import pandas as pd
import wall_errors
import wall_points
from measure import Figures, Skipped, Target

from fleetcast.models.world.catalogue_entries import BACKENDS, VLLM

LEFT = "the correction fitted without the llm of the run"
INSIDE = "inside the 90 % interval of the errors"
LOOPS = "closed loops of aiconfigurator's silicon sample: TPOT, median error"
TARGETS = {
    "wall_points": Target("", "measured TTFT and TPOT of runs that were replayed", at_least=5000),
    "wall_e2e_dense": Target(
        "", f"stages of vLLM on H100, dense llms, E2E, median error; {LEFT}", at_most=0.04
    ),
    "wall_e2e_dense_raw": Target("", "the same without correction"),
    "wall_e2e_mixture": Target("", "the same of Mixtral-8x7B, which no correction reaches", at_most=0.08),
    "wall_ttft": Target(
        "", "TTFT of all stages, median error; seconds of the front end from the other llms", at_most=0.08
    ),
    "wall_ttft_raw": Target("", "the same without a front end"),
    "wall_ttft_silicon": Target("", "closed loops: TTFT, median error; the measured mean is not defined"),
    "wall_tpot_silicon_dense": Target("", f"{LOOPS}, dense llms, all engines; {LEFT}", at_most=0.08),
    "wall_tpot_silicon_dense_raw": Target("", "the same without correction"),
    "wall_tpot_silicon_dense_vllm": Target("", f"{LOOPS}, dense llms on vLLM; {LEFT}"),
    "wall_tpot_silicon_dense_vllm_raw": Target("", "the same without correction"),
    "wall_tpot_silicon_mixture": Target("", f"{LOOPS}, mixtures, all engines; {LEFT}", at_most=0.12),
    "wall_tpot_silicon_mixture_vllm": Target("", f"{LOOPS}, mixtures on vLLM; {LEFT}"),
    "wall_covered": Target("", f"runs on vLLM, dense and mixtures, {INSIDE} of other llms", 0.85, 0.95),
    "wall_covered_gpu": Target("", f"the same runs, {INSIDE} on other GPU types", 0.85, 0.95),
    "wall_covered_composed": Target("", f"composed profiles: runs {INSIDE} of other llms", 0.85, 0.95),
    "wall_covered_composed_gpu": Target("", f"composed profiles: runs {INSIDE} on other GPU types"),
    "wall_covered_roofline": Target("", f"the roofline: runs {INSIDE} of other llms", 0.85, 0.95),
    "wall_covered_roofline_gpu": Target("", f"the roofline: runs {INSIDE} on other GPU types"),
    "wall_covered_ttft": Target("", f"TTFT of stages with profiles of all sources, {INSIDE} of other llms"),
    "wall_covered_e2e": Target("", f"E2E of these, {INSIDE} of TPOT of other llms"),
    "wall_same_corrected": Target("", f"{LOOPS}, runs that every source has; {LEFT}"),
    "wall_same_raw": Target("", "the same runs: aiconfigurator-core alone"),
    "wall_same_composed": Target("", "the same runs: composed profiles"),
    "wall_same_roofline": Target("", "the same runs: the roofline, fitted without the llm"),
    "wall_ranks_points": Target("runs", "closed loops of vLLM with data-parallel ranks"),
    "wall_ranks_tpot": Target("", "error of TPOT of these mixtures, median", at_most=0.12),
    "wall_ranks_ttft": Target("", "error of TTFT of these, median"),
    **{
        f"wall_tpot_{backend}_{kind}": Target("", f"{LOOPS}, {kind} llms on {backend}")
        for backend in wall_errors.OTHER_BACKENDS
        for kind in ("dense", "mixture")
    },
    **{
        f"wall_order_{first}_{second}{figure}": Target("", what)
        for first, second in combinations(reversed(BACKENDS), 2)
        for figure, what in (
            ("", "the same settings on both backends, more than 10 % apart: the faster one is right"),
            ("_pairs", "the same: pairs of runs"),
        )
    },
}
APART = np.log(1.1)  # TPOT of two backends that differ by more than noise
SAME_RUN = ["llm", "precision", "system", "tp", "ep", "clients", "isl", "osl"]
MOST_CLIENTS = 512  # of a rank: the profiles know batches up to it
RUNS = None  # how many closed loops are replayed; None: all


def wall() -> Figures:
    """Stages and closed loops, replayed; errors by metric, with what the correction fits left out."""
    if not wall_points.SILICON.exists():
        raise Skipped("no measured runs in ../shared/data")
    runs = wall_points.silicon_runs().reset_index(names="run")
    loops = wall_points.replay_silicon(runs if RUNS is None else runs.sample(RUNS, random_state=3))
    stages = wall_points.replay_stages()
    vllm = loops[loops["backend"] == "vllm"]
    package = wall_errors.package_runs(vllm, stages)
    others = [wall_errors.composed_runs(vllm), wall_errors.roofline_runs(vllm)]
    figures = {"wall_points": 2.0 * (len(loops) + len(stages))}
    figures |= covered_figures(pd.concat([package, *others], ignore_index=True))
    figures |= stage_figures(stages, package[package["ttft_log"].notna()])
    return figures | loop_figures(loops, package) | same_runs(vllm, package, *others)


def covered_figures(runs: pd.DataFrame) -> Figures:
    """Shares of runs in the intervals of other llms, and of other GPU types."""
    figures: Figures = {}
    for column, suffix in (("llm", ""), ("system", "_gpu")):
        inside = wall_errors.is_covered(runs, column)
        shares = inside.groupby(runs["source"].reindex(inside.index)).mean()
        for source, name in (("package", ""), ("composed", "_composed"), ("roofline", "_roofline")):
            figures[f"wall_covered{name}{suffix}"] = float(shares.get(source, np.nan))
    for metric in ("ttft", "e2e"):
        figures[f"wall_covered_{metric}"] = float(wall_errors.is_covered(runs, "llm", f"{metric}_log").mean())
    return figures


def ranks() -> Figures:
    """Closed loops of vLLM with data-parallel ranks, each rank with its part of the clients, uncorrected."""
    if not wall_points.SILICON.exists():
        raise Skipped("no measured runs in ../shared/data")
    runs = wall_points.silicon_runs("vllm", with_ranks=True)
    runs = runs[runs["clients"] <= MOST_CLIENTS]
    loops = wall_points.replay_silicon(runs if RUNS is None else runs.sample(RUNS, random_state=3))
    return {
        "wall_ranks_points": len(loops),
        "wall_ranks_tpot": float(error(loops, "tpot").median()),
        "wall_ranks_ttft": float(error(loops, "ttft").median()),
    }


def stage_figures(stages: pd.DataFrame, corrected: pd.DataFrame) -> Figures:
    """Errors of E2E and TTFT of the stages."""
    is_dense = stages["is_dense"].astype(bool).to_numpy()
    raw, own = error(stages, "e2e").to_numpy(), error(corrected, "e2e").to_numpy()
    return {
        "wall_e2e_dense": float(np.median(own[is_dense])),
        "wall_e2e_dense_raw": float(np.median(raw[is_dense])),
        "wall_e2e_mixture": float(np.median(own[~is_dense])),
        "wall_ttft": float(np.expm1(-corrected["ttft_log"].astype(float)).abs().median()),
        "wall_ttft_raw": float(error(stages, "ttft").median()),
    }


def error(table: pd.DataFrame, metric: str) -> pd.Series:
    """|replayed / measured - 1| of a metric."""
    return (table[f"{metric}_replayed_s"] / table[f"{metric}_s"] - 1).abs().astype(float)


def loop_figures(loops: pd.DataFrame, package: pd.DataFrame) -> Figures:
    """Errors of the closed loops; only profiles of vLLM are corrected."""
    is_dense, is_vllm = loops["is_dense"].astype(bool), loops["backend"] == "vllm"
    raw = error(loops, "tpot")
    own = raw.copy()
    own[is_vllm] = error(package[package["ttft_log"].isna()], "tpot").to_numpy()
    return {
        "wall_ttft_silicon": float(error(loops, "ttft").median()),
        "wall_tpot_silicon_dense": float(own[is_dense].median()),
        "wall_tpot_silicon_dense_raw": float(raw[is_dense].median()),
        "wall_tpot_silicon_dense_vllm": float(own[is_dense & is_vllm].median()),
        "wall_tpot_silicon_dense_vllm_raw": float(raw[is_dense & is_vllm].median()),
        "wall_tpot_silicon_mixture": float(own[~is_dense].median()),
        "wall_tpot_silicon_mixture_vllm": float(own[~is_dense & is_vllm].median()),
    }


def same_runs(raw: pd.DataFrame, *sources: pd.DataFrame) -> Figures:
    """Errors of TPOT of four sources of profiles on the closed loops of vLLM that all of them have."""
    tables = dict(zip(("raw", "corrected", "composed", "roofline"), (raw, *sources), strict=True))
    of_loops = {name: table.dropna(subset=["run"]) for name, table in tables.items()}
    errors = {name: error(table, "tpot").set_axis(table["run"]) for name, table in of_loops.items()}
    medians = pd.DataFrame(errors).dropna().median()
    return {f"wall_same_{name}": float(medians[name]) for name in tables}


def backends() -> Figures:
    """Errors of SGLang's and TensorRT-LLM's profiles, and which of two backends is faster."""
    if not wall_points.SILICON.exists():
        raise Skipped("no measured runs in ../shared/data")
    runs = wall_points.silicon_runs().reset_index(names="run")
    loops = wall_points.replay_silicon(runs if RUNS is None else runs.sample(RUNS, random_state=3))
    vllm = wall_errors.package_runs(loops[loops["backend"] == VLLM], wall_points.replay_stages())
    others = {name: wall_errors.backend_runs(loops, name) for name in wall_errors.OTHER_BACKENDS}
    corrected = pd.concat([vllm.dropna(subset=["run"]), *others.values()])
    figures: Figures = {}
    for name, own in others.items():
        medians = error(own, "tpot").groupby(own["is_dense"].astype(bool)).median()
        figures |= {
            f"wall_tpot_{name}_{kind}": float(medians.get(is_dense, np.nan))
            for kind, is_dense in (("dense", True), ("mixture", False))
        }
    seconds = corrected.groupby([*SAME_RUN, "backend"])[["tpot_s", "tpot_replayed_s"]].median()
    logs = np.log(seconds.astype(float)).unstack("backend")
    for first, second in combinations(reversed(BACKENDS), 2):
        measured, replayed = (
            logs.get((metric, first), np.nan) - logs.get((metric, second), np.nan)
            for metric in ("tpot_s", "tpot_replayed_s")
        )
        is_apart = np.abs(measured) > APART
        is_right = (measured > 0) == (replayed > 0)
        figures[f"wall_order_{first}_{second}"] = (
            float(is_right[is_apart].mean()) if is_apart.any() else np.nan
        )
        figures[f"wall_order_{first}_{second}_pairs"] = float(is_apart.sum())
    return figures


SMOKE = {"wall": {"RUNS": 8}, "ranks": {"RUNS": 1}, "backends": {"RUNS": 12}}
FUNCTIONS = (wall, ranks, backends)
