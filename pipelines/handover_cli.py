"""`fleetcast plan export | ran | grade`: export a plan to a cluster, import the fleet that ran, and grade."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    PolicyOption,
    QuietOption,
    RegionOption,
    ServerMatchersOption,
    expand_path,
    load_cli_settings,
    load_settings_and_day,
    make_progress,
    parse_day,
)
from fleetcast.pipelines.terminal import cli_errors, show_note
from fleetcast.pipelines.terminal_tables import OUT, show_table

if TYPE_CHECKING:
    from fleetcast.assets.lake.settings import RunSettings
    from fleetcast.assets.plans.export_options import ExportOptions

SHADOW_BY_TIER_SQL = """
select
    policy, tier, ran_in_time_share, advised_in_time_share, gained_share, replay_error_share, is_beyond_error
from graded_shadow where trace = $trace and day = $day order by policy, tier
"""
KUBECTL_IMAGE = "alpine/k8s:1.34.1"
SCALER = "fleetcast-scaler.default:6000"  # the service's usual address in a cluster


class ExportFormat(StrEnum):
    """The format of an exported plan."""

    JSON = "json"
    K8S = "k8s"
    KEDA_SCALER = "keda-scaler"
    HPA = "hpa"
    CAPACITY_BUFFER = "capacity-buffer"
    RAY_SERVE = "ray-serve"


class ExportMode(StrEnum):
    """What an exported plan may change: nothing, the minimum of replicas, or the replicas."""

    ADVISORY = "advisory"
    FLOOR = "floor"
    ACTIVE = "active"


def export_command(
    format_: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="json; k8s: KEDA ScaledObjects with cron triggers; keda-scaler: KEDA ScaledObjects that "
            "query fleetcast serve scaler; hpa: for llm-d; capacity-buffer: nodes ahead of time; ray-serve: "
            "its calls.",
        ),
    ],
    policy: PolicyOption = "corrected",
    region: RegionOption = None,
    date_: DayOption = None,
    config: ConfigOption = "office",
    mode: Annotated[
        ExportMode,
        typer.Option(
            help="advisory: the plan changes nothing; floor: it is the minimum; active: it sets the replicas."
        ),
    ] = ExportMode.ACTIVE,
    target: Annotated[
        str, typer.Option(help="The object that runs an llm, GROUP/VERSION/KIND, with a scale subresource.")
    ] = "apps/v1/Deployment",
    namespace: Annotated[str, typer.Option(help="The namespace of the cluster's objects.")] = "default",
    triggers: Annotated[
        Path | None,
        typer.Option(help="Mode floor: a YAML list of your own triggers, which may scale above the plan."),
    ] = None,
    scaler: Annotated[
        str, typer.Option(help="keda-scaler: HOST:PORT where KEDA reaches the scaler.")
    ] = SCALER,
    hour: Annotated[
        int | None,
        typer.Option(
            help="hpa, capacity-buffer: one hour of the day; default: the whole plan and a CronJob.",
            min=0,
            max=23,
        ),
    ] = None,
    kubernetes: Annotated[
        str | None,
        typer.Option(
            help="k8s, keda-scaler: the cluster's version. From 1.35 on (and KEDA 2.20) each step is "
            "followed exactly; else a step within the tolerance of an HPA is taken with some replicas too "
            "many, for two minutes."
        ),
    ] = None,
    image: Annotated[
        str, typer.Option(help="hpa, capacity-buffer: the CronJob's image, with sh, awk and kubectl.")
    ] = KUBECTL_IMAGE,
    node_lead_minutes: Annotated[
        float, typer.Option(help="capacity-buffer: minutes until a node is ready.", min=0, max=24 * 60)
    ] = 5.0,
    question: Annotated[
        str | None,
        typer.Option(help="json, k8s: export the plan that `plan quality` printed under this name."),
    ] = None,
) -> None:
    """Write a day's plan to stdout: JSON with load, cost and reasons, or objects that scale one cluster.

    Replicas are requested one boot time before they have to serve ([replay] boot_local_s or boot_remote_s).
    Objects that act hold the plan in force until the exported day begins, and after its end the plan's
    highest count. So they can be applied at any time. Every object has the decision_id of its rows of
    all_plans.

        fleetcast plan export --format json > plan.json

        fleetcast plan export --format k8s --region east --mode advisory | kubectl --context east apply -f -

        fleetcast plan export --format keda-scaler --region east | kubectl --context east apply -f -

        fleetcast plan export --format hpa --region east --hour 8 --mode floor

        fleetcast plan export --format json --config quality --question 0.58_12s
    """
    with cli_errors():
        from fleetcast.assets.plans import quality_export
        from fleetcast.assets.plans.export_options import (
            ExportOptions,
            parse_custom_triggers,
            parse_kubernetes_version,
            parse_scale_target,
        )

        settings = load_cli_settings(config)
        if question is not None:
            typer.echo(quality_export.export_quality_plan(settings, question, format_.value).rstrip("\n"))
            return
        file = None if triggers is None else expand_path(triggers)
        options = ExportOptions(
            mode=mode.value,
            target=parse_scale_target(target),
            namespace=namespace,
            triggers=()
            if file is None
            else parse_custom_triggers(file.read_text(encoding="utf-8"), file.name),
            scaler=scaler,
            hour=hour,
            node_lead_s=60 * node_lead_minutes,
            kubernetes=None if kubernetes is None else parse_kubernetes_version(kubernetes),
            image=image,
            day=parse_day(date_) or settings.config.trace.replay_day,
        )
        if text := _export_plan(settings, format_, policy, region, options).rstrip("\n"):
            typer.echo(text)


def _export_plan(
    settings: "RunSettings", format_: ExportFormat, policy: str, region: str | None, options: "ExportOptions"
) -> str:
    """Return a plan in a format: of its day, or for objects that act of the plan in force until then too."""
    from fleetcast.assets.plans.cluster_formats import CLUSTER_FORMATS, describe_empty_export
    from fleetcast.assets.plans.cluster_workloads import early_boots, limit_to_config
    from fleetcast.assets.plans.held_plan import drop_idle_workloads, read_held_plan
    from fleetcast.assets.plans.plan_export import plan_to_json, read_plan_rows
    from fleetcast.assets.plans.plan_flows import describe_region_exports

    day = options.day or settings.config.trace.replay_day
    rows, limits = limit_to_config(settings, read_plan_rows(settings, day, policy, region))
    show_note(limits)
    flows = describe_region_exports(settings, rows)  # before workloads without an instance are left out
    if format_ is ExportFormat.JSON:
        show_note(flows)
        return plan_to_json(rows, early_boots(settings, rows))
    if options.mode == "advisory" or options.hour is not None:
        rows = drop_idle_workloads(rows)
    elif format_ is not ExportFormat.KEDA_SCALER:  # whose scaler follows later plans, of any workload
        rows, _ = limit_to_config(settings, read_held_plan(settings, day, policy, region, datetime.now(UTC)))
    show_note(flows)
    text = CLUSTER_FORMATS[format_.value](settings, rows, options)
    if not text:
        show_note(describe_empty_export(rows, options))
    return text


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
