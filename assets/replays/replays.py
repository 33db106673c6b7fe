"""Replays of a day: every policy on the same requests, from the same fleet."""

import dataclasses
import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from threading import Event, Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assets.lake.lookups import positions, require_day
from assets.lake.schemas import PARTITIONS
from assets.lake.settings import HOURS, Progress, Settings, midnight, side_by_side
from assets.replays.closed_loop import play_closed
from assets.replays.drives import DAY_S, HOUR_S, day_drives, setting
from models.metrics import tpot_s
from models.replay.policies import POLICIES
from models.replay.run import STATUSES, TAIL_PERIODS, Outcome, Session, replay, share_of
from models.replay.state import ROLES, STATES, Fleet, Trace
from models.world.reading import ConfigError, require_known

ENDED_S = DAY_S + TAIL_PERIODS * HOUR_S  # when a replay stops watching, on the day's clock


class Workload(NamedTuple):
    """A day of requests: the table they came from and the arrays that the kernel reads."""

    requests: pa.Table
    trace: Trace


def replay_day(settings: Settings, day: date, policies: Sequence[str], progress: Progress) -> int:
    """Replay the day under each policy, two at a time, and write what came of it; the number of outcomes."""
    for policy in policies:
        require_known(policy, POLICIES, "policy", "replay")
    require_day(settings.lake, "plans", settings.trace, day)
    workload = read_workload(settings, day)
    drives = day_drives(settings, day)
    total = len(policies) * workload.requests.num_rows
    ended, lock, stopped = dict.fromkeys(policies, 0), Lock(), Event()
    with progress.bar(f"replay {day}", total) as done:

        def one(policy: str) -> None:
            def step(requests: int) -> None:
                if stopped.is_set():
                    raise KeyboardInterrupt
                with lock:
                    ended[policy] = requests
                    done(sum(ended.values()))

            fleet, rules = setting(settings, policy)
            if POLICIES[policy].is_closed:
                session = Session(fleet, rules, np.asarray(drives[policy].start))
                outcome = play_closed(settings, day, policy, session, workload.trace, step)
            else:
                outcome = replay(workload.trace, fleet, drives[policy], rules, DAY_S, step)
            write_outcome(settings, day, policy, workload, fleet, outcome)
            step(workload.requests.num_rows)

        side_by_side(one, policies, stopped.set)  # what has begun stops at its next step
    return total


@contextmanager
def of_one_config(settings: Settings, day: date) -> Iterator[None]:
    """All policies of a day are replayed in here: what others left goes, and which config it was is noted."""
    for table in (name for name, keys in PARTITIONS.items() if "policy" in keys):
        for folder in _note(settings, day, table).parent.glob("policy=*"):
            if folder.name.removeprefix("policy=") not in settings.config.replay.policies:
                shutil.rmtree(folder)
    note = _note(settings, day)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("unfinished")
    yield
    note.write_text(_fingerprint(settings))


def require_same_config(settings: Settings, day: date) -> None:
    """Refuse to set one policy beside others that were planned and replayed under another config."""
    note = _note(settings, day)
    if note.is_file() and note.read_text() != _fingerprint(settings):
        raise ConfigError(
            f"The results of {day} are not of {settings.config.file.name} as it is now: it or the catalogue "
            f"has changed, or the night did not end. Make the day again: fleetcast nightly --date {day}"
        )


def _note(settings: Settings, day: date, table: str = "outcomes") -> Path:
    return settings.lake.path(table, trace=settings.trace, day=day).parent.parent / "made_from"


def _fingerprint(settings: Settings) -> str:
    """Of all that a plan and a replay of the day's requests depend on, whichever policies are named."""
    config = settings.config
    replay = dataclasses.replace(config.replay, policies=())
    parts = (settings.catalogue, config.trace.seed, config.fleet, config.forecast, config.plan, replay)
    return hashlib.sha256(repr((*parts, config.calendar)).encode()).hexdigest()


def read_workload(settings: Settings, day: date) -> Workload:
    """Read a day's requests as the kernel's arrays; codes are positions in the catalogue."""
    table = settings.lake.read("requests", trace=settings.trace, day=day)
    catalogue = settings.catalogue
    since = pc.subtract(table["arrived_at"], pa.scalar(midnight(day), pa.timestamp("us", "UTC")))
    trace = Trace(
        arrival_s=since.cast(pa.int64()).to_numpy() / 1e6,
        region=positions(table, "region", catalogue.regions),
        llm=positions(table, "llm", catalogue.llms),
        tier=positions(table, "tier", catalogue.tiers),
        input_tokens=table["input_tokens"].to_numpy(),
        output_tokens=table["output_tokens"].to_numpy(),
    )
    return Workload(table, trace)


def write_outcome(
    settings: Settings, day: date, policy: str, workload: Workload, fleet: Fleet, outcome: Outcome
) -> None:
    """Write one policy's requests and fleet hours."""
    tables = {
        "outcomes": outcomes_table(settings, workload, outcome),
        "fleet_hours": fleet_hours_table(settings, day, fleet, outcome),
    }
    for name, table in tables.items():
        settings.lake.write(name, table, trace=settings.trace, day=day, policy=policy)


def outcomes_table(settings: Settings, workload: Workload, outcome: Outcome) -> pa.Table:
    """One row per request: who it was, the targets it had, and what it met (seconds from its arrival)."""
    table, arrival_s, tier = workload.requests, workload.trace.arrival_s, workload.trace.tier
    tiers = settings.catalogue.tiers.values()
    ttft_s, e2e_s = outcome.first_token_s - arrival_s, outcome.finish_s - arrival_s
    regions = pa.array([*settings.catalogue.regions, None])
    queued_s = np.where(outcome.status == STATUSES.index("queued"), ENDED_S - arrival_s, np.nan)
    kept = [
        "request_id",
        "region",
        "llm",
        "tier",
        "app",
        "arrived_at",
        "input_tokens",
        "output_tokens",
        "deadline_s",
    ]
    return pa.table(
        {
            **{name: table[name] for name in kept},
            "is_held": np.array([known.is_held for known in tiers])[tier],
            "ttft_slo_s": _or_null(np.array([known.ttft_slo_s or np.nan for known in tiers])[tier]),
            "tpot_slo_s": _or_null(np.array([known.tpot_slo_s or np.nan for known in tiers])[tier]),
            "served_region": regions.take(pa.array(outcome.served_region % len(regions))),
            "status": pa.array(STATUSES).take(pa.array(outcome.status)),
            "ttft_s": _or_null(ttft_s),
            "tpot_s": _or_null(tpot_s(ttft_s, e2e_s, workload.trace.output_tokens)),
            "e2e_s": _or_null(e2e_s),
            "queued_s": _or_null(queued_s),
            "preemptions": outcome.preemptions,
            "instance": pa.array(outcome.slot, mask=outcome.slot < 0),
            "held_s": _or_null(outcome.dispatched_s - arrival_s),
            "waited_s": _or_null(outcome.admitted_s - outcome.dispatched_s),
            "prefill_s": _or_null(outcome.first_token_s - outcome.network_s - outcome.admitted_s),
            "network_s": outcome.network_s,
        }
    )


def fleet_hours_table(settings: Settings, day: date, fleet: Fleet, outcome: Outcome) -> pa.Table:
    """One row per hour, llm, role, region and kind: instance-seconds by state, memory in use, GPU's price."""
    catalogue = settings.catalogue
    llms, regions, gpus = list(catalogue.llms), list(catalogue.regions), list(catalogue.gpus)
    usd = np.array([gpu.usd_per_hour for gpu in catalogue.gpus.values()])
    of_pools = np.stack([fleet.llm, fleet.region, fleet.kind, fleet.role])
    rows, of_row = np.unique(of_pools, axis=1, return_inverse=True)
    llm, region, kind, role = (np.tile(column, HOURS) for column in rows)

    def together(of_pools: np.ndarray) -> np.ndarray:
        """(hours, pools, ...) -> (hours * rows, ...): the pools of a kind are counted together."""
        total = np.zeros((len(of_pools), rows.shape[1], *of_pools.shape[2:]))
        for pool, row in enumerate(of_row.ravel()):
            total[:, row] += of_pools[:, pool]
        return total.reshape(-1, *of_pools.shape[2:])

    hour = np.repeat(np.arange(HOURS), rows.shape[1]) * np.timedelta64(timedelta(hours=1))
    start = np.datetime64(midnight(day).replace(tzinfo=None), "us") + hour
    states = together(outcome.instance_s).T
    gpu = fleet.gpu[kind]
    return pa.table(
        {
            "hour_start": pa.array(start).cast(pa.timestamp("us", "UTC")),
            "llm": pa.array(llms).take(pa.array(llm)),
            "role": pa.array(ROLES).take(pa.array(role)),
            "region": pa.array(regions).take(pa.array(region)),
            "gpu": pa.array(gpus).take(pa.array(gpu)),
            "gpus_per_instance": fleet.gpus[kind],
            **{f"{state}_s": pa.array(seconds) for state, seconds in zip(STATES, states, strict=True)},
            "kv_utilisation_share": _or_null(share_of(together(outcome.kv_used), together(outcome.kv_room))),
            "usd_per_gpu_hour": usd[gpu],
        }
    )


def _or_null(values: np.ndarray) -> pa.Array:
    return pa.array(values, from_pandas=True)  # nan becomes null
