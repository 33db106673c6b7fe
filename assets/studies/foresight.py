"""What a forecast is worth by boot time: rules that react and rules that foresee, tuned for each boot time.

The longer an instance takes to serve, the more a rule without a forecast must hold in advance. Each boot time
is a comparison on unseen days (assets/studies/unseen_days.py) with the same requests and forecasts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import cycle, product
from typing import Any

import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.pages.figure_style import (
    MUTED,
    PALETTE,
    Axes,
    Figure,
    add_figure_legend,
    fill_empty_figure,
)
from fleetcast.assets.studies.board_day import with_policies
from fleetcast.assets.studies.experiment import EVALUATED, Variant, scratch_lake, write_trials
from fleetcast.assets.studies.study import prepare_lake
from fleetcast.assets.studies.unseen_days import (
    BoardPeriod,
    hash_setting,
    tune_and_score,
    with_crossed_policies,
)
from fleetcast.models.world.policies import PolicySpec
from fleetcast.models.world.toml_dataclasses import ConfigError

FORESIGHT = "foresight"
FORESIGHT_POLICIES = (
    *("reflex", "corrected", "clairvoyant"),
    *("reflex_gaps", "corrected_gaps", "clairvoyant_gaps", "compact"),
)
SPREAD = 1.5  # longest boot from spot over its median
FORESIGHT_SQL = (
    "select * from foresight where trace = $trace order by boot_s, min_instances, against, total_usd"
)
SCORED_SQL = (
    "select day, policy, reading, factor, days.total_usd, attained_ratio, days.floor_usd, board.known_ratio "
    "from unseen_days as days inner join unseen_board as board using (trace, policy, reading, factor) "
    "where purpose = 'judged' order by all"
)
MOST_COLUMNS = 3  # of panels
PANEL_LABELS = {
    "boot_min": "boot, minutes; hollow: not ranked",
    "floor_percent": "minimum of instances, % of cost",
}
REPORTED = ("total_usd", "attained_ratio", "floor_usd", "known_ratio")


def compare_boot_times(
    settings: RunSettings,
    period: BoardPeriod,
    boots_s: Sequence[float],
    names: Sequence[str],
    progress: Progress,
    minimums: Sequence[int] = (),
) -> pa.Table:
    """Tune and score policies for each boot time and minimum; return the rows of the mart foresight.

    `names`: policies; empty: FORESIGHT_POLICIES. `minimums`: instances (`with_minimum`); empty: as in the
    config. The rows have earlier runs of the same period too. ConfigError for an unknown policy, or for an
    impossible time or minimum.
    """
    settings, _ = with_crossed_policies(settings, names, "fleetcast board --boot-s")
    policies = list(dict.fromkeys(names or FORESIGHT_POLICIES))
    for boot_s in boots_s:
        if not 0 < boot_s <= 86_400:
            raise ConfigError(
                f"--boot-s: got {boot_s:g}, needed seconds above 0 and up to 86,400. Change it."
            )
    variants = [
        (boot_s, least, with_minimum(with_boot_time(settings, boot_s), least))
        for boot_s, least in product(boots_s, minimums or (None,))
    ]
    prepared = prepare_lake(settings, [*period.known, *period.unseen], progress)
    for boot_s, least, changed in variants:
        of_least = "" if least is None else f", at least {least}"
        progress.say(f"instances that serve after {boot_s:g} s{of_least}")
        with scratch_lake(with_policies(changed, policies)) as scratch:
            tune_and_score(scratch, period, prepared, progress)
            scores = scratch.lake.sql(SCORED_SQL).to_pylist()
        write_scores(settings, period, boot_s, least, scores)
    return settings.lake.sql(FORESIGHT_SQL, trace=settings.trace)


def write_scores(
    settings: RunSettings,
    period: BoardPeriod,
    boot_s: float,
    least: int | None,
    scores: Iterable[Mapping[str, Any]],
) -> None:
    """Write what each policy cost and attained on each unseen day; drop what other periods have.

    `scores`: rows of SCORED_SQL. `boot_s`, `least`: boot time, and minimum of instances or None.
    """
    of_period = (
        f"{period.known[0]} to {period.unseen[-1]}, {period.trials} trials, {hash_setting(settings)}, "
    )
    for file in settings.lake.files("trials", experiment=FORESIGHT, trace=settings.trace):
        is_of_period = any(f"day={day}" in file.parts for day in period.unseen)
        if not (is_of_period and file.stem.startswith(of_period)):
            settings.lake.remove(file)
    tables: dict[date, list[pa.Table]] = {}
    for row in scores:
        knobs = {"boot_s": boot_s, "factor": row["factor"]}
        knobs |= {} if least is None else {"min_instances": float(least)}
        rule = settings.config.rules[row["policy"]]
        labels = {"reading": row["reading"], "against": rule_without_forecast(rule)}
        name = f"{row['policy']}, {boot_s:g} s"
        variant = Variant(name, settings, row["day"], row["policy"], knobs, labels, purpose=EVALUATED)
        rows = variant.rows({"metric": figure, "value": row[figure]} for figure in REPORTED)
        tables.setdefault(row["day"], []).append(rows)
    for day, of_day in tables.items():
        write_trials(settings, FORESIGHT, day, pa.concat_tables(of_day), f"{of_period}{boot_s:g} s, {least}")


def rule_without_forecast(rule: PolicySpec) -> str:
    """Return the policy that differs from `rule` by having no forecast: with its mechanisms, or without."""
    has_both = (rule.routing, rule.batch_pull) == ("least_prefill", "gaps")
    return "reflex_gaps" if has_both else "reflex"


def with_boot_time(settings: RunSettings, boot_s: float) -> RunSettings:
    """Return the settings in which an instance serves after this time (median), wherever it comes from."""
    changed = replace(
        settings.config.replay,
        boot_spot_s=boot_s,
        boot_spot_max_s=SPREAD * boot_s,
        boot_local_s=boot_s,
        boot_remote_s=boot_s,
    )
    return settings.with_config(replay=changed)


def with_minimum(settings: RunSettings, least: int | None) -> RunSettings:
    """Return the settings in which a pool that has a minimum of instances has this one; None: as it is.

    ConfigError for more than a pool may have, for none (a rule that observes the work at its instances starts
    none where there is none), and where no pool has a minimum.
    """
    if least is None:
        return settings
    fleet = settings.config.fleet
    if not any(fleet.limits(pool)[1] for pools in fleet.deployments.values() for pool in pools):
        raise ConfigError(
            f"--min-instances: {settings.config.file.name} has no pool with a minimum. Set min_instances "
            "where it may be raised, instead of survive, or leave --min-instances out."
        )
    if not 1 <= least <= min(fleet.limits(pool)[2] for pools in fleet.deployments.values() for pool in pools):
        raise ConfigError(
            f"--min-instances: got {least}, needed 1 to the max_instances of each pool. Change it."
        )
    deployments = {
        llm: tuple(replace(pool, min_instances=least if fleet.limits(pool)[1] else 0) for pool in pools)
        for llm, pools in fleet.deployments.items()
    }
    return settings.with_config(fleet=replace(fleet, deployments=deployments))


def draw_foresight(frame: pd.DataFrame) -> Figure:
    """Draw what each policy costs over the one without a forecast, by boot time and by minimum.

    `frame`: rows of the mart foresight. A bar is the 95 % interval; a hollow point has no rank.
    """
    import matplotlib.pyplot as plt

    rows = frame[(frame["policy"] != frame["against"]) & frame["over_reflex_share"].notna()]
    panels = [(str(trace), "boot_min", of_trace) for trace, of_trace in rows.groupby("trace", sort=False)]
    panels = [(title, by, of_trace[of_trace["min_instances"].isna()]) for title, by, of_trace in panels]
    for (trace, _), of_boot in rows.groupby(["trace", "boot_s"], sort=False):
        if of_boot["min_instances"].notna().any():
            minutes = of_boot["boot_s"].iloc[0] / 60
            panels.append((f"{trace}, {minutes:g} min", "floor_percent", of_boot))
    panels = [panel for panel in panels if not panel[2].empty]
    if not panels:
        return fill_empty_figure(
            plt.figure(), "no policy with the one without a forecast at the same boot time"
        )
    columns = min(MOST_COLUMNS, len(panels))
    figure, grid = plt.subplots(-(-len(panels) // columns), columns, sharey=True, squeeze=False)
    labels = dict(zip(rows["policy"], rows["policy"] + " over " + rows["against"], strict=True))
    colours = dict(zip(sorted(labels), cycle(PALETTE), strict=False))
    for at, (title, by, of_panel) in zip(grid.flat, panels, strict=False):
        draw_differences(at, of_panel, by, colours)
        at.set(title=title, xlabel=PANEL_LABELS[by])
    for unused in grid.flat[len(panels) :]:
        unused.set_visible(False)
    figure.supylabel("cost over the rule without a forecast, %", fontsize=12)
    add_figure_legend(figure, [(label, colours[policy]) for policy, label in labels.items()], MOST_COLUMNS)
    return figure


def draw_differences(panel: Axes, rows: pd.DataFrame, by: str, colours: Mapping[str, str]) -> None:
    """Draw a line per policy over `by`, a key of PANEL_LABELS; `rows` of the mart foresight."""
    panel.axhline(0.0, color=MUTED, linewidth=1, zorder=1)
    rows = rows.assign(boot_min=rows["boot_s"] / 60, floor_percent=100 * rows["minimum_share"]).sort_values(
        by
    )
    for policy, line in rows.groupby("policy"):
        colour, marker = colours[str(policy)], "s" if (line["against"] == "reflex_gaps").all() else "o"
        low, over, high = (100 * line[f"{end}over_reflex_share"] for end in ("low_", "", "high_"))
        panel.vlines(line[by], low, high, color=colour, linewidth=1.5, alpha=0.6, zorder=2)
        panel.plot(line[by], over, color=colour, zorder=2)
        faces = [colour if is_ranked else "white" for is_ranked in line["is_ranked"]]
        panel.scatter(line[by], over, c=faces, edgecolors=colour, marker=marker, zorder=3)
    if by == "boot_min":
        times = sorted(rows[by].unique())
        panel.set_xscale("log")
        panel.set_xticks(times, [f"{time:g}" for time in times])
        panel.minorticks_off()
