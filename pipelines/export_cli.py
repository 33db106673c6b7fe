"""`fleetcast plan export`: a plan as JSON, or as objects that scale a cluster."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from click.core import ParameterSource

from fleetcast.pipelines.options import (
    ConfigOption,
    DayOption,
    PolicyOption,
    RegionOption,
    expand_path,
    load_cli_settings,
    parse_day,
)
from fleetcast.pipelines.terminal import cli_errors, show_note

if TYPE_CHECKING:
    from fleetcast.assets.lake.settings import RunSettings
    from fleetcast.assets.plans.export_options import ExportOptions

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


KEDA_FORMATS = (ExportFormat.K8S, ExportFormat.KEDA_SCALER)
HOURLY_FORMATS = (ExportFormat.HPA, ExportFormat.CAPACITY_BUFFER)
KUBERNETES_FORMATS = (*KEDA_FORMATS, *HOURLY_FORMATS)
FORMATS_OF_OPTION = {  # options of export_command that not every format uses
    "mode": (*KUBERNETES_FORMATS, ExportFormat.RAY_SERVE),
    "target": KUBERNETES_FORMATS,
    "namespace": KUBERNETES_FORMATS,
    "triggers": KEDA_FORMATS,
    "scaler": (ExportFormat.KEDA_SCALER,),
    "hour": HOURLY_FORMATS,
    "kubernetes": KEDA_FORMATS,
    "image": HOURLY_FORMATS,
    "node_lead_minutes": (ExportFormat.CAPACITY_BUFFER,),
    "question": (ExportFormat.JSON, ExportFormat.K8S),
}


def export_command(
    context: typer.Context,
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

        _require_used_options(context, format_)
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


def _require_used_options(context: typer.Context, format_: ExportFormat) -> None:
    """Raise ValueError for an option that was given and that the format, or a quality plan, does not use."""
    given = {
        str(option.name): option.opts[0]
        for option in context.command.params
        if context.get_parameter_source(str(option.name)) == ParameterSource.COMMANDLINE
    }
    for name, option in given.items():
        formats = FORMATS_OF_OPTION.get(name, tuple(ExportFormat))
        if format_ not in formats:
            raise ValueError(
                f"{option}: --format {format_.value} does not use it. Leave it out, or take "
                f"{', '.join(formats[:-1])}{' or ' if formats[:-1] else ''}{formats[-1]}."
            )
        if "question" in given and name not in ("format_", "config", "question"):
            raise ValueError(f"{option}: a plan of --question has no day, region or cluster. Leave it out.")


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
