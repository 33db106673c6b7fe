"""Fit data/catalogue/engine.toml to the wall: python tests/bench/wall_fit.py [--write]

Prints the coefficient, the one without each llm, the errors of TPOT of the llms left out, and for each kind
of computed profiles its law and how many runs the laws of other llms and of other GPU types cover.
"""

import re
import sys

import measure
import numpy as np
import pandas as pd
import wall_errors
import wall_points

ENGINE_TOML = measure.ROOT / "data" / "catalogue" / "engine.toml"


def main() -> None:
    """Fit, print, and write with --write."""
    loops = wall_points.silicon_runs("vllm")
    stages, package = wall_points.replay_stages(), wall_points.replay_silicon(loops)
    others = wall_points.replay_silicon(wall_points.silicon_runs())
    raw = pd.concat([package, stages], ignore_index=True)
    dense = raw[raw["is_dense"].astype(bool)].reset_index(drop=True)
    print_correction(dense)
    limits = wall_errors.fit_limits(wall_points.silicon_runs())
    print(f"limits of mixtures: {limits}")
    if not wall_errors.LIMITS_WITHOUT.items() <= limits.items():
        print("out of date: wall_errors.LIMITS_WITHOUT")
    runs = pd.concat(
        [
            wall_errors.package_runs(package, stages),
            wall_errors.composed_runs(loops),
            wall_errors.roofline_runs(loops),
            *(wall_errors.backend_runs(others, backend) for backend in wall_errors.OTHER_BACKENDS),
        ],
        ignore_index=True,
    )
    print_front_end(runs)
    print_coverage(runs)
    fitted = {
        "step_doubling_s": f"{wall_points.fit_step_doubling(dense):.4g}",
        "mixture_most_over_roofline": f"{limits['']:.4g}",
    }
    fitted |= {kind: format_laws(runs, kind) for kind in sorted(set(runs["kind"]))}
    text = ENGINE_TOML.read_text(encoding="utf-8")
    for name, value in fitted.items():
        print(f"{name} = {value}")
        text = re.sub(rf"^{name} = .*$", f"{name} = {value}", text, flags=re.MULTILINE)
    if "--write" in sys.argv:
        ENGINE_TOML.write_text(text, encoding="utf-8")


def print_correction(dense: pd.DataFrame) -> None:
    """Print the coefficient without each llm, and the errors of that llm before and after."""
    left_out_s = wall_points.left_out_steps(dense)
    before = wall_points.tpot_error(dense, np.zeros(len(dense)))
    after = wall_points.tpot_error(dense, left_out_s.to_numpy())
    table = dense[["llm", "system"]].assign(step_ms=1e3 * left_out_s, before=before, after=after)
    print(table.groupby(["llm", "system"]).agg(["median"]).round(3).to_string())
    print(f"dense: {np.median(before):.3f} before, {np.median(after):.3f} after, each llm left out")


def print_front_end(runs: pd.DataFrame) -> None:
    """Print the seconds of the engine's front end, and the errors of TTFT with those of the other llms."""
    stages = runs[(runs["source"] == "package") & runs["ttft_log"].notna()]
    front_s = float((stages["ttft_s"] - stages["ttft_replayed_s"]).median())
    error = float(np.expm1(-stages["ttft_log"].astype(float)).abs().median())
    print(f"front end: {1e3 * front_s:.1f} ms; TTFT then {error:.3f} off, each llm left out")


def print_coverage(runs: pd.DataFrame) -> None:
    """Print the share of runs in the 90 % interval of other llms and of other GPU types, the worst first."""
    for column in ("llm", "system"):
        table = runs.assign(inside=wall_errors.is_covered(runs, column))
        by_kind = table.groupby("kind")["inside"].agg(["size", "mean"])
        by_value = table.groupby(["kind", column])["inside"].agg(["size", "mean"]).sort_values("mean")
        print(f"inside the interval of the runs with another {column}:")
        print(by_kind.astype(float).round(3).to_string())
        print(by_value.astype(float).round(3).to_string())
    for error in ("ttft_log", "e2e_log"):
        inside = wall_errors.is_covered(runs, "llm", error)
        print(f"{error}: {inside.mean():.3f} of {len(inside)} stages in the interval of the other llms")


def format_laws(runs: pd.DataFrame, kind: str) -> str:
    """Return the laws of a kind of profiles as TOML."""
    laws = {"prefill": wall_errors.fit_prefill(runs, kind), "decode": wall_errors.fit_decode(runs, kind)}
    parts = (f"{phase} = {{ bias = {law.bias:.3f}, sigma = {law.sigma:.3f} }}" for phase, law in laws.items())
    return f"{{ {', '.join(parts)} }}"


if __name__ == "__main__":
    main()
