"""Fit data/catalogue/engine.toml to the wall: python tests/bench/wall_fit.py [--write]

Prints the coefficient, the one without each llm, and the errors of TPOT of the llms left out.
"""

import re
import sys

import measure
import numpy as np
import pandas as pd
import wall_points

ENGINE_TOML = measure.ROOT / "data" / "catalogue" / "engine.toml"


def main() -> None:
    """Fit, print, and write with --write."""
    stages, loops = wall_points.replay_stages(), wall_points.replay_silicon(wall_points.silicon_runs("vllm"))
    runs = pd.concat([loops, stages], ignore_index=True)
    is_dense = runs["is_dense"].astype(bool)
    dense, mixtures = runs[is_dense].reset_index(drop=True), runs[~is_dense]
    left_out_s = wall_points.left_out_steps(dense)
    before = wall_points.tpot_error(dense, np.zeros(len(dense)))
    after = wall_points.tpot_error(dense, left_out_s.to_numpy())
    table = pd.DataFrame(
        {
            "llm": dense["llm"],
            "system": dense["system"],
            "step_ms": 1e3 * left_out_s,
            "before": before,
            "after": after,
        }
    )
    print(table.groupby(["llm", "system"]).agg(["median"]).round(3).to_string())
    ttft_s = stages["ttft_replayed_s"] + wall_points.left_out_front_s(stages)
    fitted = {
        "step_doubling_s": wall_points.fit_step_doubling(dense),
        "median_error_share": float(np.median(after)),
        "mixture_median_error_share": float(
            np.median(wall_points.tpot_error(mixtures, np.zeros(len(mixtures))))
        ),
        "prefill_median_error_share": float(
            (stages["ttft_replayed_s"] / stages["ttft_s"] - 1).abs().median()
        ),
    }
    front_s = float((stages["ttft_s"] - stages["ttft_replayed_s"]).median())
    front_error = float((ttft_s / stages["ttft_s"] - 1).abs().median())
    print(f"dense: {np.median(before):.3f} before, {np.median(after):.3f} after, each llm left out")
    print(f"front end: {1e3 * front_s:.1f} ms; TTFT then {front_error:.3f} off, each llm left out")
    text = ENGINE_TOML.read_text(encoding="utf-8")
    for name, value in fitted.items():
        print(f"{name} = {value:.4g}")
        text = re.sub(rf"^{name} = .*$", f"{name} = {value:.4g}", text, flags=re.MULTILINE)
    if "--write" in sys.argv:
        ENGINE_TOML.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
