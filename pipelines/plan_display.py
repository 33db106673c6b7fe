"""Print a day's plan in the terminal: the fleet of the first hour, its changes, load and cost by hour."""

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
from rich import box
from rich.table import Table

from fleetcast.assets.plans.plan_export import EarlyBoots, describe_deployment
from fleetcast.models.aliases import Row
from fleetcast.pipelines.csv_text import write_csv
from fleetcast.pipelines.terminal_tables import OUT

STEP_COLUMNS = (
    *("hour_start", "region", "llm", "gpu", "gpus_per_instance", "role", "instances_before", "instances"),
    *("reclaimed", "started", "donated", "usd", "why"),
)


def show_plans(plans: Sequence[tuple[Sequence[Row], Sequence[Row], EarlyBoots]]) -> None:
    """Print the plans of several days; in a pipe only their steps, as one CSV.

    Each plan has its steps, which are the endpoints of its first hour and then every change; its hours, which
    are rows of queries/plan_by_hour.sql; and what its replicas use before they serve. A region where nothing
    of the plan is has hours, but no steps.
    """
    if not sys.stdout.isatty():
        all_steps = [step for steps, *_ in plans for step in steps]
        columns = {name: [step[name] for step in all_steps] for name in STEP_COLUMNS}
        write_csv(pa.table(columns).to_reader(), sys.stdout.buffer)
        return
    for plan in plans:
        _show_plan(*plan)


def _show_plan(steps: Sequence[Row], hours: Sequence[Row], boots: EarlyBoots) -> None:
    begin = hours[0]["hour_start"]
    OUT.print("{trace}, {day}, plan of {policy}".format(**hours[0]))
    OUT.print(_fleet_table([step for step in steps if step["hour_start"] == begin], begin))
    OUT.print(_change_table(steps, begin))
    OUT.print(_hour_table(hours))
    gpu_hours, usd = (sum(hour[name] for hour in hours) for name in ("gpus", "usd"))
    OUT.print(f"the day: {gpu_hours:,} GPU-hours, {usd:,.0f} USD")
    OUT.print(
        f"with boots: {gpu_hours + boots.boot_gpu_hours:,.0f} GPU-hours, {usd + boots.boot_usd:,.0f} USD "
        "(an instance is started one boot time before it has to serve)"
    )


def _new_table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False
    )
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _fleet_table(steps: Sequence[Row], begin: datetime) -> Table:
    """Return the instances of each llm and deployment, a column per region."""
    regions = list(dict.fromkeys(step["region"] for step in steps))
    title = f"\ninstances from {begin:%H:%M} UTC on"
    table = _new_table(title, ("llm", "deployment"), regions)
    counts = {
        (step["llm"], describe_deployment(step), step["region"]): str(step["instances"]) for step in steps
    }
    for llm, deployment in dict.fromkeys((llm, deployment) for llm, deployment, _ in counts):
        table.add_row(llm, deployment, *(counts.get((llm, deployment, region), "–") for region in regions))
    return table


def _change_table(steps: Sequence[Row], begin: datetime) -> Table:
    """Return the changes by hour with their reasons; with the deployment where an llm has several."""
    deployments = {(step["llm"], describe_deployment(step)) for step in steps}
    count_by_llm = Counter(llm for llm, _ in deployments)
    table = _new_table("\nchanges", ("hour", "region", "llm"), ("from", "to"))
    table.add_column("change and reason", overflow="fold")
    for step in (step for step in steps if step["hour_start"] > begin):
        counts = (str(step[name]) for name in ("instances_before", "instances"))
        llm = f"{step['llm']}, {describe_deployment(step)}" if count_by_llm[step["llm"]] > 1 else step["llm"]
        table.add_row(f"{step['hour_start']:%H:%M}", step["region"], llm, *counts, step["why"])
    return table


def _hour_table(hours: Sequence[Row]) -> Table:
    """Return the instances, GPUs, USD, changes, utilisation and missing capacity of each hour."""
    heads = ("in-\nstances", "\nGPUs", "\nUSD", "from\nspot", "\nstarted", "to\nspot", "highest\nload, %")
    table = _new_table("\nby hour", ("\nhour",), (*heads, "short,\ntokens/s"))
    for hour in hours:
        fullest = "–" if hour["fullest_share"] is None else f"{100 * hour['fullest_share']:,.0f}"
        short = max(hour["short_tokens_per_s"], hour["short_llm_tokens_per_s"])
        counts = (str(hour[name]) for name in ("reclaimed", "started", "donated"))
        table.add_row(
            f"{hour['hour_start']:%H:%M}",
            str(hour["instances"]),
            f"{hour['gpus']:,}",
            f"{hour['usd']:,.0f}",
            *counts,
            fullest,
            f"{short:,.0f}" if short else "",
        )
    return table
