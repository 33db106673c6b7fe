"""Replay the measured runs of the picture wall, and record both times: python tests/bench/wall_picture.py"""

from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes

from fleetcast.assets.pages.figure_style import MUTED, Figure

ROWS = Path(__file__).parent / "picture_rows" / "wall.csv"
PANELS = {  # of the runs: the factor of their seconds, the title, and the ticks
    "stages": (1.0, "stages of vLLM on H100: median E2E, s", (2, 3, 4, 5, 6)),
    "loops": (1e3, "closed loops on vLLM: median TPOT, ms", (3, 10, 30, 100)),
}


def replay_wall() -> pd.DataFrame:
    """Replay the wall, corrected as shipped: runs, llm, measured_s and replayed_s of each run.

    The roofline that limits mixtures is fitted without the llm of a run.
    """
    import measure  # noqa: F401  (it finds the modules of tests)
    import wall_errors
    import wall_points

    catalogue, _ = wall_points.replay_setting()
    stages = wall_points.replay_stages(lambda _: catalogue.engine.step_doubling_s)
    loops = wall_points.replay_silicon(wall_points.silicon_runs("vllm"))
    step_s = loops["is_dense"].astype(float) * catalogue.engine.step_doubling_s
    added_s = wall_points.added_step_s(loops, step_s.to_numpy())
    loops = loops.assign(tpot_replayed_s=loops["tpot_replayed_s"] + added_s)
    most = catalogue.engine.mixture_most_over_roofline
    loops.update(wall_errors.replay_limited(loops, lambda _: most)[["tpot_replayed_s"]])
    columns = ("runs", "llm", "measured_s", "replayed_s")
    named = (
        table.assign(runs=runs).rename(
            columns={f"{metric}_s": "measured_s", f"{metric}_replayed_s": "replayed_s"}
        )
        for runs, table, metric in (("stages", stages, "e2e"), ("loops", loops, "tpot"))
    )
    return pd.concat([table[[*columns]] for table in named])


def draw_wall(wall: pd.DataFrame) -> Figure:
    """Draw replayed over measured seconds, a panel for stages and one for closed loops."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 6))
    for panel, (runs, (factor, title, ticks)) in zip(panels, PANELS.items(), strict=True):
        table = wall[wall["runs"] == runs]
        draw_pairs(panel, factor * table.set_index("llm")[["measured_s", "replayed_s"]])
        panel.set(title=f"{len(table):,} {title}", xlabel="measured", ylabel="replayed")
        for set_ticks in (panel.set_xticks, panel.set_yticks):
            set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
    return figure


def draw_pairs(panel: Axes, pairs: pd.DataFrame) -> None:
    """Draw a point per run, a colour per llm, and the line of equal times; the legend is below."""
    for llm, rows in pairs.groupby(level=0):
        panel.loglog(rows["measured_s"], rows["replayed_s"], "o", ms=4, alpha=0.7, label=llm)
    ends = [pairs["measured_s"].min(), pairs["measured_s"].max()]
    panel.plot(ends, ends, color=MUTED, linewidth=1)
    panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, fontsize=9, frameon=False)


if __name__ == "__main__":
    replay_wall().to_csv(ROWS, index=False, float_format="%.4g")
