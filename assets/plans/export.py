"""A plan for whoever carries it out: as JSON with its reasons, or as KEDA objects with replica targets.

A cron trigger of KEDA holds a number of replicas between two instants: one per stretch of hours in which the
plan does not change, each bound to the planned day. A kind of an llm is the deployment LLM-GPU in the cluster
of its region, with its role where it prefills or decodes, and with its number of GPUs where there are several
such; `kubectl --context REGION apply` takes the export of one region.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta
from itertools import groupby
from typing import Any

from assets.lake.settings import Settings
from models.replay.policies import planned
from models.world.reading import require_known

Row = Mapping[str, Any]
HOUR = timedelta(hours=1)
KIND = ("llm", "gpu", "gpus_per_instance", "role")
CHANGE = ("instances_before", "instances", "reclaimed", "started", "donated", "why")
LOAD = ("demand_tokens_per_s", "buffer_tokens_per_s", "short_tokens_per_s")


def plan_of(settings: Settings, day: date, policy: str, region: str | None = None) -> list[Row]:
    """The plan of a policy, in order of region, llm, kind and hour; ValueError where there is none."""
    require_known(policy, planned(settings.config.rules), "policy with a plan", "plan")
    if region is not None:
        require_known(region, settings.catalogue.regions, "region", "plan")
    rows = settings.lake.sql(
        "select * from all_plans where trace = $trace and day = $day and policy = $policy "
        "and region = coalesce($region, region) "
        "order by region, llm, gpu, gpus_per_instance, role, hour_start",
        trace=settings.trace, day=day, policy=policy, region=region,
    ).to_pylist()  # fmt: skip
    if not rows:
        raise ValueError(
            f"The trace {settings.trace!r} has no plan of {policy} on {day}. "
            f"Make it: fleetcast nightly --date {day}, or for a day to come fleetcast plan ahead."
        )
    return rows


def steps(rows: Iterable[Row]) -> list[Row]:
    """What is to be done, in order of time: the whole fleet of the first hour, then every change."""
    ordered = sorted(rows, key=lambda row: row["hour_start"])
    first = ordered[0]["hour_start"]
    return [row for row in ordered if row["hour_start"] == first or row["why"] is not None]


def as_json(rows: Iterable[Row]) -> str:
    """Hour by hour what each endpoint has to carry and holds of a kind, its cost, what changes, and why."""
    ordered = sorted(rows, key=lambda row: row["hour_start"])
    hours = [
        _hour(start, list(of_hour)) for start, of_hour in groupby(ordered, key=lambda row: row["hour_start"])
    ]
    first = ordered[0]
    plan = {name: first[name] for name in ("trace", "policy", "programme")}
    whole = {"gpu_hours": sum(hour["gpus"] for hour in hours), "usd": sum(hour["usd"] for hour in hours)}
    return json.dumps({**plan, "day": first["day"].isoformat(), **whole, "hours": hours}, indent=2)


def as_k8s(rows: Iterable[Row]) -> str:
    """One KEDA ScaledObject per kind of an llm, as YAML documents; ValueError for more than one region."""
    rows = list(rows)
    regions = list(dict.fromkeys(row["region"] for row in rows))
    if len(regions) > 1:
        raise ValueError(
            f"The plan has the regions {', '.join(regions)}; Kubernetes objects are for one cluster. "
            f"Choose its region: --region {regions[0]}."
        )
    by_kind = {
        kind: list(of) for kind, of in groupby(rows, key=lambda row: tuple(row[name] for name in KIND))
    }
    told = [f"{llm}-{gpu}" for llm, gpu, *_ in dict.fromkeys((llm, gpu, n) for llm, gpu, n, _ in by_kind)]
    documents = []
    for (llm, gpu, gpus_per_instance, role), own in by_kind.items():
        parts = [f"{llm}-{gpu}"]
        parts += [f"x{gpus_per_instance}"] if told.count(parts[0]) > 1 else []
        parts += [] if role == "whole" else [role]
        documents.append("".join(f"{line}\n" for line in _scaled_object(dns_label("-".join(parts)), own)))
    return "---\n".join(documents)


def _hour(start: datetime, rows: list[Row]) -> dict[str, Any]:
    endpoints = [_endpoint(row) for row in rows]
    whole = {name: sum(endpoint[name] for endpoint in endpoints) for name in ("gpus", "usd")}
    return {"hour_start": start.isoformat(), **whole, "endpoints": endpoints}


def _endpoint(row: Row) -> dict[str, Any]:
    named = {name: row[name] for name in ("region", *KIND, *CHANGE, *LOAD, "usd")}
    serves = row["instances"] * row["capacity_tokens_per_s"]
    gpus = row["instances"] * row["gpus_per_instance"]
    return {**named, "capacity_tokens_per_s": serves, "gpus": gpus}


def _scaled_object(name: str, rows: list[Row]) -> Iterator[str]:
    first = rows[0]
    counts = [row["instances"] for row in rows]
    yield from (
        "apiVersion: keda.sh/v1alpha1",
        "kind: ScaledObject",
        "metadata:",
        f"  name: {name}",
        "  labels:",
        f"    fleetcast/region: {dns_label(first['region'])}",
        f"    fleetcast/policy: {dns_label(first['policy'])}",
        f'    fleetcast/day: "{first["day"]}"',
        "spec:",
        "  scaleTargetRef:",
        f"    name: {name}",
        f"  minReplicaCount: {min(counts)}",
        f"  maxReplicaCount: {max(max(counts), 1)}",
        "  triggers:",
    )
    for count, start, end in _stretches(rows):
        yield from (
            "    - type: cron",
            "      metadata:",
            "        timezone: Etc/UTC",
            f'        start: "{_cron(start)}"',
            f'        end: "{_cron(end)}"',
            f'        desiredReplicas: "{count}"',
        )


def _stretches(rows: list[Row]) -> Iterator[tuple[int, datetime, datetime]]:
    """Consecutive hours with the same count: the count, their beginning, their end."""
    for count, hours in groupby(rows, key=lambda row: row["instances"]):
        starts = [row["hour_start"] for row in hours]
        yield count, starts[0], starts[-1] + HOUR


def _cron(moment: datetime) -> str:
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"


def dns_label(name: str) -> str:
    """A name as Kubernetes takes it: lower case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


FORMATS = {"json": as_json, "k8s": as_k8s}
