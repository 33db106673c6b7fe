"""Draw data/figures/bench/wall.png, measured against replayed seconds: python tests/bench/wall_picture.py"""

import matplotlib.pyplot as plt
import measure
import pandas as pd
import wall_points

from fleetcast.assets.pages.figure_files import save_figure

FIGURE = measure.ROOT / "data" / "figures" / "bench" / "wall.png"


def main() -> None:
    """Replay the wall, corrected as it is shipped, and draw it."""
    catalogue, _ = wall_points.replay_setting()
    stages = wall_points.replay_stages(catalogue.engine.step_doubling_s)
    loops = wall_points.replay_silicon(wall_points.silicon_runs("vllm"))
    step_s = loops["is_dense"].astype(float) * catalogue.engine.step_doubling_s
    added_s = wall_points.added_step_s(loops, step_s.to_numpy())
    loops = loops.assign(tpot_replayed_s=loops["tpot_replayed_s"] + added_s)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5.2), dpi=110, constrained_layout=True)
    draw_pairs(left, stages, "e2e", 1.0, f"{len(stages):,} stages of vLLM on H100: median E2E, s")
    draw_pairs(right, loops, "tpot", 1e3, f"{len(loops):,} closed loops on vLLM: median TPOT, ms")
    save_figure(figure, FIGURE)


def draw_pairs(axes: plt.Axes, table: pd.DataFrame, metric: str, factor: float, title: str) -> None:
    """Draw a point per run, a colour per llm, and the line of equal times."""
    for llm, rows in table.groupby("llm"):
        axes.loglog(
            factor * rows[f"{metric}_s"],
            factor * rows[f"{metric}_replayed_s"],
            "o",
            ms=4,
            alpha=0.7,
            label=llm,
        )
    ends = [factor * table[f"{metric}_s"].min(), factor * table[f"{metric}_s"].max()]
    axes.plot(ends, ends, color="0.4", lw=1)
    axes.set(title=title, xlabel="measured", ylabel="replayed")
    axes.legend(fontsize=8)


if __name__ == "__main__":
    main()
