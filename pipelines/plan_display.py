"""A day's plan in the terminal, as it is carried out: the fleet, its changes, what the hours cost."""

import sys
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
from rich import box
from rich.table import Table

from fleetcast.models.aliases import Row
from fleetcast.pipelines.csv_text import write_csv
from fleetcast.pipelines.terminal_tables import OUT

STEP_COLUMNS = (
    *("hour_start", "region", "llm", "gpu", "gpus_per_instance", "role", "instances_before", "instances"),
    *("reclaimed", "started", "donated", "usd", "why"),
)


def show_plans(plans: Sequence[tuple[Sequence[Row], Sequence[Row]]]) -> None:
    """Print the plans of some days; in a pipe their steps alone, as one CSV.

    The steps of a plan are the endpoints of its first hour and then every change, its hours the rows of
    plan_by_hour.
    """
    if not sys.stdout.isatty():
        all_steps = [{name: step[name] for name in STEP_COLUMNS} for steps, _ in plans for step in steps]
        write_csv(pa.Table.from_pylist(all_steps).to_reader(), sys.stdout.buffer)
        return
    for steps, hours in plans:
        _show_day(steps, hours)


def _show_day(steps: Sequence[Row], hours: Sequence[Row]) -> None:
    begin = steps[0]["hour_start"]
    OUT.print("{trace}, {day}, plan of {policy}".format(**steps[0]))
    OUT.print(_fleet([step for step in steps if step["hour_start"] == begin]))
    OUT.print(_changes(steps, begin))
    OUT.print(_hours(hours))
    gpu_hours, usd = (sum(hour[name] for hour in hours) for name in ("gpus", "usd"))
    OUT.print(f"the day: {gpu_hours:,} GPU-hours, {usd:,.0f} USD")


def _table(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False
    )
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _fleet(steps: Sequence[Row]) -> Table:
    """Instances of each llm, a column per region."""
    regions = list(dict.fromkeys(step["region"] for step in steps))
    title = f"\ninstances from {steps[0]['hour_start']:%H:%M} UTC on"
    table = _table(title, ("llm", "of GPUs"), regions)
    held = {(step["llm"], _kind(step), step["region"]): str(step["instances"]) for step in steps}
    for llm, kind in dict.fromkeys((step["llm"], _kind(step)) for step in steps):
        table.add_row(llm, kind, *(held.get((llm, kind, region), "–") for region in regions))
    return table


def _kind(step: Row) -> str:
    """What the instances are, and which part of a request they do where it is not all of it."""
    gpus = f"{step['gpus_per_instance']} x {step['gpu']}"
    return gpus if step["role"] == "whole" else f"{gpus}, {step['role']}"


def _changes(steps: Sequence[Row], begin: datetime) -> Table:
    """What to add and what to give up, hour by hour, and why; of which kind, where an llm has several."""
    kinds = {(step["llm"], _kind(step)) for step in steps}
    several = {llm for llm, _ in kinds if sum(one == llm for one, _ in kinds) > 1}
    table = _table("\nchanges", ("hour", "region", "llm"), ("from", "to"))
    table.add_column("what and why", overflow="fold")
    for step in (step for step in steps if step["hour_start"] > begin):
        counts = (str(step[name]) for name in ("instances_before", "instances"))
        llm = f"{step['llm']}, {_kind(step)}" if step["llm"] in several else step["llm"]
        table.add_row(f"{step['hour_start']:%H:%M}", step["region"], llm, *counts, step["why"])
    return table


def _hours(hours: Sequence[Row]) -> Table:
    """What each hour holds and costs, and what it lacks."""
    heads = ("in-\nstances", "\nGPUs", "\nUSD", "from\nspot", "\nstarted", "to\nspot", "fullest,\n%")
    table = _table("\nby hour", ("\nhour",), (*heads, "short,\ntokens/s"))
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
