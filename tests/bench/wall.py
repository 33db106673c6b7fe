"""The wall: replays of aiconfigurator-core's profiles against measured runs of engines."""

import dataclasses

import numpy as np
import pandas as pd
import wall_points
from measure import Figures, Skipped, Target

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.composed_profiles import compose_profile
from fleetcast.models.latency.roofline import roofline_profile
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.toml_dataclasses import ConfigError

LEFT = "the correction fitted without the llm of the run"
LOOPS = "closed loops of aiconfigurator's silicon sample: TPOT, median error"
TARGETS = {
    "wall_points": Target("", "measured TTFT and TPOT of runs that were replayed", at_least=5000),
    "wall_e2e_dense": Target(
        "", f"stages of vLLM on H100, dense llms, E2E, median error; {LEFT}", at_most=0.04
    ),
    "wall_e2e_dense_raw": Target("", "the same without correction"),
    "wall_e2e_mixture": Target("", "the same of Mixtral-8x7B, which has no correction", at_most=0.08),
    "wall_ttft": Target(
        "", "TTFT of all stages, median error; seconds of the front end from the other llms", at_most=0.08
    ),
    "wall_ttft_raw": Target("", "the same without a front end"),
    "wall_ttft_silicon": Target("", "closed loops: TTFT, median error; the measured mean is not defined"),
    "wall_tpot_silicon_dense": Target("", f"{LOOPS}, dense llms, all engines; {LEFT}", at_most=0.08),
    "wall_tpot_silicon_dense_raw": Target("", "the same without correction"),
    "wall_tpot_silicon_dense_vllm": Target("", f"{LOOPS}, dense llms on vLLM; {LEFT}"),
    "wall_tpot_silicon_dense_vllm_raw": Target("", "the same without correction"),
    "wall_tpot_silicon_mixture": Target("", f"{LOOPS}, mixtures, all engines", at_most=0.12),
    "wall_tpot_silicon_mixture_vllm": Target("", f"{LOOPS}, mixtures on vLLM"),
    "wall_covered": Target(
        "", "dense and mixture runs on vLLM inside the 90 % interval of errors of other llms", 0.85, 0.95
    ),
    "wall_same_corrected": Target("", f"{LOOPS}, runs that every source has; {LEFT}"),
    "wall_same_raw": Target("", "the same runs: aiconfigurator-core alone"),
    "wall_same_composed": Target("", "the same runs: composed profiles"),
    "wall_same_roofline": Target("", "the same runs: the roofline"),
    "wall_ranks_points": Target("runs", "closed loops of vLLM with data-parallel ranks"),
    "wall_ranks_tpot": Target("", "error of TPOT of these mixtures, median", at_most=0.12),
    "wall_ranks_ttft": Target("", "error of TTFT of these, median"),
}
MOST_CLIENTS = 512  # of a rank: the profiles know batches up to it
RUNS = None  # how many closed loops are replayed; None: all
NAMES = {"Llama-3.1-8B": "llama3.1-8b", "Llama-3.1-70B": "llama3.1-70b", "Qwen3-32B": "qwen3-32b"}
GPUS = {"h100_sxm": "h100-80gb", "h200_sxm": "h200-141gb", "b200_sxm": "b200-180gb"}
BITS = {"bf16": 16, "fp8": 8}


def wall() -> Figures:
    """Stages and closed loops, replayed; errors by metric, with what the correction fits left out."""
    if not wall_points.SILICON.exists():
        raise Skipped("no measured runs in ../shared/data")
    runs = wall_points.silicon_runs()
    loops = wall_points.replay_silicon(runs if RUNS is None else runs.sample(RUNS, random_state=3))
    stages = wall_points.replay_stages()
    vllm = pd.concat([loops[loops["backend"] == "vllm"], stages], ignore_index=True)
    dense, mixtures = vllm[vllm["is_dense"]].copy(), vllm[~vllm["is_dense"].astype(bool)]
    dense["left_out_s"] = wall_points.left_out_steps(dense)
    figures = {"wall_points": 2.0 * (len(loops) + len(stages))}
    covered = [
        wall_points.covered_share(part, steps) * len(part)
        for part, steps in ((dense, dense["left_out_s"].to_numpy()), (mixtures, np.zeros(len(mixtures))))
    ]
    figures["wall_covered"] = sum(covered) / len(vllm)
    figures |= stage_figures(stages, dense)
    return figures | loop_figures(loops, dense) | same_runs(dense)


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


def stage_figures(stages: pd.DataFrame, dense: pd.DataFrame) -> Figures:
    """Errors of E2E and TTFT of the stages."""
    steps_s = dense.groupby("llm")["left_out_s"].first()
    played = {
        step_s: wall_points.replay_stages(step_s)
        for step_s in steps_s.reindex(stages["llm"]).dropna().unique()
    }
    corrected = pd.DataFrame(
        [
            played[steps_s[row.llm]].loc[row.Index] if row.is_dense else stages.loc[row.Index]
            for row in stages.itertuples()
        ]
    )
    is_dense = stages["is_dense"].astype(bool)
    raw, own = (error(table, "e2e") for table in (stages, corrected))
    ttft_s = corrected["ttft_replayed_s"] + wall_points.left_out_front_s(corrected)
    return {
        "wall_e2e_dense": float(own[is_dense].median()),
        "wall_e2e_dense_raw": float(raw[is_dense].median()),
        "wall_e2e_mixture": float(own[~is_dense].median()),
        "wall_ttft": float((ttft_s / corrected["ttft_s"] - 1).abs().median()),
        "wall_ttft_raw": float(error(stages, "ttft").median()),
    }


def error(table: pd.DataFrame, metric: str) -> pd.Series:
    """|replayed / measured - 1| of a metric."""
    return (table[f"{metric}_replayed_s"] / table[f"{metric}_s"] - 1).abs().astype(float)


def loop_figures(loops: pd.DataFrame, dense: pd.DataFrame) -> Figures:
    """Errors of the closed loops; only profiles of vLLM are corrected."""
    is_dense, is_vllm = loops["is_dense"].astype(bool), loops["backend"] == "vllm"
    steps_s = loops["llm"].map(dense.groupby("llm")["left_out_s"].first()).where(is_dense & is_vllm, 0.0)
    raw = error(loops, "tpot")
    own = pd.Series(wall_points.tpot_error(loops, steps_s.fillna(0.0).to_numpy()), loops.index)
    return {
        "wall_ttft_silicon": float(error(loops, "ttft").median()),
        "wall_tpot_silicon_dense": float(own[is_dense].median()),
        "wall_tpot_silicon_dense_raw": float(raw[is_dense].median()),
        "wall_tpot_silicon_dense_vllm": float(own[is_dense & is_vllm].median()),
        "wall_tpot_silicon_dense_vllm_raw": float(raw[is_dense & is_vllm].median()),
        "wall_tpot_silicon_mixture": float(own[~is_dense].median()),
        "wall_tpot_silicon_mixture_vllm": float(own[~is_dense & is_vllm].median()),
    }


def same_runs(dense: pd.DataFrame) -> Figures:
    """Errors of four sources of profiles on the closed loops of vLLM that all of them have."""
    runs = dense[dense["llm"].isin(NAMES) & dense["system"].isin(GPUS) & dense["precision"].isin(BITS)]
    errors = {
        "composed": other_errors(runs, compose_profile),
        "roofline": other_errors(runs, roofline_profile),
    }
    errors["raw"] = wall_points.tpot_error(runs, np.zeros(len(runs)))
    errors["corrected"] = wall_points.tpot_error(runs, runs["left_out_s"].to_numpy())
    return {f"wall_same_{name}": float(np.nanmedian(of_runs)) for name, of_runs in errors.items()}


def other_errors(runs: pd.DataFrame, estimate: object) -> Floats:
    """|replayed / measured - 1| of TPOT with profiles of another source, shape (runs,)."""
    catalogue, found = load_catalogue(), []
    for run in runs.itertuples():
        name = NAMES[run.llm]
        served = dataclasses.replace(catalogue.llms[name], weight_bits=BITS[run.precision])
        own = dataclasses.replace(catalogue, llms={name: served})
        try:
            profile = estimate(own, name, GPUS[run.system], run.tp)  # type: ignore[operator]
        except ConfigError:
            found.append(np.nan)
            continue
        profile = dataclasses.replace(profile, llm=wall_points.LLM, gpu=wall_points.GPU)
        room = wall_points.kv_room_tokens(run.llm, run.precision, run.system, run.tp)
        loop = wall_points.ClosedLoop(int(run.clients), int(run.isl), int(run.osl))
        _, replayed_s = wall_points.play_closed_loop(loop, profile, room)
        found.append(abs(replayed_s / run.tpot_s - 1))
    return np.array(found)


SMOKE = {"wall": {"RUNS": 8}, "ranks": {"RUNS": 1}}
FUNCTIONS = (wall, ranks)
