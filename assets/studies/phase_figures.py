"""Draw USD per million input tokens against USD per million output tokens, a point per deployment."""

from datetime import date

import numpy as np
import pandas as pd

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.store import LakePath
from fleetcast.assets.pages.figure_files import save_day_figure
from fleetcast.assets.pages.figure_style import BLUE, INK, MUTED, Figure
from fleetcast.models.world.model_rows import file_stem

INPUT_USD_COLUMN, OUTPUT_USD_COLUMN = "usd_per_million_input_tokens", "usd_per_million_output_tokens"


def draw_phase_prices(settings: RunSettings, day: date, llm: str) -> LakePath:
    """Draw the token prices of an llm's phases into the folder of the day's figures."""
    query = "select * from phase_prices where trace = $trace and day = $day and llm = $llm"
    frame = settings.lake.sql(query, trace=settings.trace, day=day, llm=llm).to_pandas()
    return save_day_figure(
        settings, day, f"phase_prices_{file_stem(llm)}", lambda: draw_price_hull(frame, llm)
    )


def draw_price_hull(frame: pd.DataFrame, llm: str) -> Figure:
    """Draw a point per deployment, and the line of those that no other beats in both phases.

    `frame`: is_best_of_gpu, gpu, gpus_per_instance, usd_per_million_input_tokens,
    usd_per_million_output_tokens, is_cheapest_together, disaggregation_saving_bound_share.
    """
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    x, y = frame[INPUT_USD_COLUMN], frame[OUTPUT_USD_COLUMN]
    hull = frame[[not ((x < a) & (y < b)).any() for a, b in zip(x, y, strict=True)]].sort_values(
        INPUT_USD_COLUMN
    )
    panel.plot(hull[INPUT_USD_COLUMN], hull[OUTPUT_USD_COLUMN], color=BLUE, linewidth=1, zorder=1)
    panel.scatter(x, y, s=40, color=list(np.where(frame.index.isin(hull.index), BLUE, MUTED)), zorder=2)
    is_labelled = frame["is_best_of_gpu"] | frame.index.isin(hull.index)
    for row in frame[is_labelled].to_dict("records"):
        name = f"{row['gpus_per_instance']}x{row['gpu']}"
        panel.annotate(
            f"{name}, cheapest for both phases" if row["is_cheapest_together"] else name,
            (row[INPUT_USD_COLUMN], row[OUTPUT_USD_COLUMN]), xytext=(6, 5), textcoords="offset points",
            fontsize=10, color=INK,
        )  # fmt: skip
    bound = 100 * frame["disaggregation_saving_bound_share"].max()
    panel.set(
        xscale="log", yscale="log", xlabel="USD per million input tokens",
        ylabel="USD per million output tokens", title=f"{llm}: disaggregation saves {bound:.1f} % at most",
    )  # fmt: skip
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda value, _: f"{value:g}")
        axis.set_tick_params(which="both", labelsize=9)
    panel.margins(x=0.25)
    return figure
