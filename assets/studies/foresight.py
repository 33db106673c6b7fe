"""What a forecast is worth by boot time: rules that react and rules that foresee, tuned for each boot time.

The longer an instance takes to serve, the more a rule without a forecast must hold in advance. Each boot time
is a comparison on unseen days (assets/studies/unseen_days.py) with the same requests and forecasts.
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.pages.figure_style import INK, Figure, policy_colours
from fleetcast.assets.studies.board_day import with_policies
from fleetcast.assets.studies.experiment import EVALUATED, Variant, scratch_lake, write_trials
from fleetcast.assets.studies.study import prepare_lake
from fleetcast.assets.studies.unseen_days import BoardPeriod, read_unseen_board, tune_and_score
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

FORESIGHT_POLICIES = ("reflex", "compact", "corrected")
SPREAD = 1.5  # longest boot from spot over its median
FORESIGHT_SQL = "select * from foresight where trace = $trace order by boot_s, total_usd"
REPORTED = ("total_usd", "worst_ratio", "mean_ratio", "days_on_target", "days", "known_ratio")


def compare_boot_times(
    settings: RunSettings,
    period: BoardPeriod,
    boots_s: Sequence[float],
    names: Sequence[str],
    progress: Progress,
) -> pa.Table:
    """Tune and score policies for each boot time; return the rows of the mart foresight.

    `names`: policies; empty: FORESIGHT_POLICIES. ConfigError for an unknown policy or an impossible time.
    """
    policies = list(dict.fromkeys(names or FORESIGHT_POLICIES))
    for name in policies:
        require_known(name, settings.config.rules, "policy", "fleetcast board --boot-s")
    for boot_s in boots_s:
        if not 0 < boot_s <= 86_400:
            raise ConfigError(
                f"--boot-s: got {boot_s:g}, needed seconds above 0 and up to 86,400. Change it."
            )
    prepared = prepare_lake(settings, [*period.known, *period.unseen], progress)
    tables = []
    for boot_s in boots_s:
        progress.say(f"instances that serve after {boot_s:g} s")
        with scratch_lake(with_policies(with_boot_time(settings, boot_s), policies)) as scratch:
            tune_and_score(scratch, period, prepared, progress)
            rows = read_unseen_board(scratch).to_pylist()
        for row in rows:
            knobs = {"boot_s": boot_s, "factor": row["factor"]}
            labels = {"reading": row["reading"]}
            name = f"{row['policy']}, {boot_s:g} s"
            variant = Variant(
                name, settings, period.unseen[-1], row["policy"], knobs, labels, purpose=EVALUATED
            )
            tables.append(variant.rows({"metric": figure, "value": row[figure]} for figure in REPORTED))
    write_trials(settings, "foresight", period.unseen[-1], pa.concat_tables(tables))
    return settings.lake.sql(FORESIGHT_SQL, trace=settings.trace)


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


def draw_foresight(frame: pd.DataFrame) -> Figure:
    """Draw the cost of each policy by boot time; `frame`: rows of the mart foresight.

    A hollow point missed its targets on more than a fifth of the days.
    """
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots()
    colours = policy_colours(sorted(frame["policy"].unique()))
    for policy, rows in frame.sort_values("boot_s").groupby("policy"):
        colour, minutes, usd = colours[str(policy)], rows["boot_s"] / 60, rows["total_usd"] / rows["days"]
        panel.plot(minutes, usd, color=colour, zorder=2)
        faces = [colour if is_ranked else "white" for is_ranked in rows["is_ranked"]]
        panel.scatter(minutes, usd, c=faces, edgecolors=colour, zorder=3)
        panel.annotate(f"  {policy}", (minutes.iloc[-1], usd.iloc[-1]), va="center", color=INK)
    panel.set(
        xscale="log",
        xlabel="minutes until a new instance serves (median); hollow: targets missed on more than a fifth of "
        "the days",
        ylabel="USD a day, on unseen days",
    )
    panel.set_xticks(
        sorted(frame["boot_s"].unique() / 60), [f"{s / 60:g}" for s in sorted(frame["boot_s"].unique())]
    )
    panel.minorticks_off()
    return figure
