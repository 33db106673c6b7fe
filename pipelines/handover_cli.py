"""`fleetcast plan ran | grade`: import the fleet that ran, and grade a plan."""

from pathlib import Path
from typing import Annotated

import typer

from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    QuietOption,
    ServerMatchersOption,
    expand_path,
    load_cli_settings,
    load_settings_and_day,
    make_progress,
    parse_day,
)
from fleetcast.pipelines.terminal import cli_errors, show_note
from fleetcast.pipelines.terminal_tables import OUT, show_table

SHADOW_BY_TIER_SQL = """
select
    policy, tier, ran_in_time_share, advised_in_time_share, gained_share, replay_error_share, is_beyond_error
from graded_shadow where trace = $trace and day = $day order by policy, tier
"""


def ran_command(
    file: Annotated[
        Path | None,
        typer.Argument(help="CSV: at, region, workload, replicas; or JSON of a Prometheus range query."),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="A Prometheus server, instead of a file.")
    ] = None,
    date_: DayOption = None,
    step: Annotated[int, typer.Option(help="--from: seconds between two readings.", min=15, max=3600)] = 60,
    where: ServerMatchersOption = "",
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Import the fleet that really ran: ready replicas of each workload over time.

        fleetcast plan ran --from http://prometheus:9090 --date 2025-07-15 --config mine.toml

        fleetcast plan ran replicas.csv --config mine.toml

    From a server fleetcast reads one day: the kube-state-metrics of the Deployments and StatefulSets with the
    names that `plan export` writes, or else the vLLM or SGLang processes of each llm; a line says which. A
    file is CSV, or the saved JSON response to a range query whose series have the labels region and
    deployment. The import replaces earlier rows of the same days.
    """
    with cli_errors():
        from fleetcast.assets.plans.observed_fleet import import_observed_fleet
        from fleetcast.assets.plans.observed_fleet_metrics import import_fleet_metrics

        settings = load_cli_settings(config)
        if (file is None) == (from_ is None):
            raise ValueError("Name either a file or --from and the address of a Prometheus server.")
        path = None if file is None else expand_path(file)
        with make_progress(quiet).bar("import the fleet that ran", 0):
            if from_ is not None:
                day = parse_day(date_) or settings.config.trace.replay_day
                hours, source = import_fleet_metrics(settings, from_, day, step, where)
            elif path is not None:
                hours, source = import_observed_fleet(settings, path), path.name
            settings.lake.publish()
        for day, count in hours.items():
            OUT.print(f"{day}: {count} of 24 hours")
        OUT.print(f"source   {source}")
        OUT.print(f"next     {settings.command('plan grade --date DAY')}")


def grade_command(
    date_: DayOption = None,
    policy: Annotated[
        str, typer.Option(help="The policy that made the plan: day_ahead or rolling.")
    ] = "day_ahead",
    config: ConfigOption = "office",
    quiet: QuietOption = False,
) -> None:
    """Compare a day's plan with the fleet that ran: GPU-hours saved, SLO attainment, the error of the replay.

        fleetcast plan grade --date 2025-07-15

        fleetcast sql "from graded_decisions where verdict = 'short'"

    It replays both fleets on the requests of the day, which needs a plan (`fleetcast nightly`). Graded are
    the hours that the plan has and in which any workload has a sample of what ran; where another one has
    none, it counts as 0. A line names the other hours, and regions where no instance ran. If the trace has
    measured latencies, the table also has the error of the replay: a gain below that error means nothing.
    """
    with cli_errors():
        from fleetcast.assets.plans_on_demand import shadow_runs
        from fleetcast.assets.studies.graded_hours import describe_graded_hours
        from fleetcast.assets.studies.shadow_grading import grade_shadow
        from fleetcast.pipelines.runs import AssetRows, publish_on_demand

        settings, day = load_settings_and_day(config, date_)
        table = grade_shadow(settings, day, policy, make_progress(quiet))
        publish_on_demand(shadow_runs, settings, AssetRows(table, {"day": day}))
        params = {"trace": settings.trace, "day": day}
        show_table(settings.lake.sql("queries/graded_shadow.sql", **params).to_reader())
        show_table(settings.lake.sql(SHADOW_BY_TIER_SQL, **params).to_reader())
        for line in describe_graded_hours(settings, day, policy):
            show_note(line)
