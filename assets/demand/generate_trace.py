"""Generate a trace like another one: fitted by client (fit_trace_clients.py), written to the lake by day."""

from datetime import date, timedelta
from typing import NamedTuple

import numpy as np

from fleetcast.assets.demand.characterise import recorded_minutes
from fleetcast.assets.demand.fit_trace_clients import fit_clients
from fleetcast.assets.demand.prompt_traffic import add_prompts, fit_prompts
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.lake_preconditions import known_days
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.store import removal_command
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.request_days import canonical_requests, write_tiers
from fleetcast.models.traffic.client_changes import apply_client_changes
from fleetcast.models.traffic.clients import client_day
from fleetcast.models.traffic.trace_changes import TraceChanges
from fleetcast.models.traffic.trace_columns import TraceNames
from fleetcast.models.world.calendar import MINUTES_PER_DAY, require_in_years
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.toml_dataclasses import TRACE_NAME


class GenerationRequest(NamedTuple):
    """Parameters of a trace to generate."""

    like: str  # name of the original trace
    name: str  # name of the new trace
    first_day: date | None  # None: the first day of the original
    days: int
    scale: float
    seed: int
    changes: TraceChanges


def generate_trace(lake: Lake, catalogue: Catalogue, order: GenerationRequest, progress: Progress) -> int:
    """Write a trace like another one and return its number of requests.

    Days do not depend on the run that generates them, so that an interrupted order can be repeated.

    Raises
    ------
    LakeError
        The lake does not have the original, or has another trace of this name.
    ValueError
        Days or name out of range, or a change that the trace cannot have.
    """
    days = known_days(lake, "requests", order.like)
    TRACE_NAME.check(order.name, "--name")
    if order.days < 1:
        raise ValueError(f"--days: got {order.days}, needed 1 or more.")
    first = order.first_day or days[0]
    require_in_years(first, order.days, "--first-day, --days")
    stamp = lake.made_from(order.name)
    recipe = repr(order._replace(first_day=first, days=0))
    if lake.days("requests", order.name) and not (stamp.is_file() and stamp.read_text() == recipe):
        raise LakeError(
            f"The lake already has another trace {order.name!r}. Give another --name, or remove that trace: "
            f"{removal_command(lake.root, f'*/trace={order.name}')}"
        )
    names = TraceNames.of(catalogue)
    traffic, apps = fit_clients(lake, order.like, names, progress)
    if line := _short_trace_notice(lake, order.like):
        progress.say(line)
    traffic, apps = apply_client_changes(traffic, order.changes, order.scale, names, apps)
    prompts = fit_prompts(lake, order.like)
    _drop_other_days(lake, order.name, first, order.days)
    write_tiers(lake, order.name, catalogue)
    requests = 0
    for number in progress.each(f"days of {order.name}", range(order.days)):
        day = first + timedelta(days=number)
        columns = client_day(traffic, order.changes, day, first, order.seed, names)
        rows = canonical_requests(columns, day, f"like {order.like}", catalogue, apps)
        rows = add_prompts(rows, prompts, day, order.seed)
        lake.write("requests", rows, trace=order.name, day=day)
        stamp.write_text(recipe)
        requests += rows.num_rows
    return requests


def _short_trace_notice(lake: Lake, trace: str) -> str:
    """Return a sentence on the limits of a trace of less than a day; "" for a longer one."""
    recorded = np.count_nonzero(~np.isnan(recorded_minutes(lake, trace)[1]))
    if recorded >= MINUTES_PER_DAY:
        return ""
    return (
        f"{trace} was recorded for {recorded:,} minute(s), so its daily pattern is unknown. Every hour of "
        "the new trace has the rate of these minutes; --scale changes it."
    )


def _drop_other_days(lake: Lake, trace: str, first: date, days: int) -> None:
    """Delete the days that an earlier order generated outside the days of this one."""
    ordered = {first + timedelta(days=number) for number in range(days)}
    for day in set(lake.days("requests", trace)) - ordered:
        lake.drop_day(trace, day)
