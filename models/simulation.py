"""Play a trace on a fleet from Python, without config or catalogue files.

from fleetcast import Fleet, Trace, replay

trace = Trace("requests.csv")  # or a DataFrame: arrival_s (or arrived_at), input_tokens, output_tokens
fleet = Fleet("llama3.1-8b", "h100-80gb", instances=2, max_instances=8, boot_s=120)

def keep_queue_short(seen):  # a policy: it returns the number of instances that it wants
    return max(1, seen.serving + (1 if seen.waiting > 20 else -1 if seen.memory_share < 0.2 else 0))

requests = replay(trace, fleet, keep_queue_short)
print(requests["ttft_s"].quantile([0.5, 0.95]), requests.attrs)
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fleetcast.models.latency.profile_order import complete_catalogue
from fleetcast.models.replay import kernel_inputs, run
from fleetcast.models.replay.session.fleet_arrays import make_fleet
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile, Region
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.mechanisms import ENDINGS, STATES
from fleetcast.models.world.named_llms import add_named_llms
from fleetcast.models.world.toml_dataclasses import require_known, shorten_text

COLUMNS = ("input_tokens", "output_tokens")
MOST_TOKENS = 2**31 - 1  # of a prompt or an answer
MOST_INTERVALS = 1_000_000
SERVING, BOOTING, DRAINING = (STATES.index(name) for name in ("serving", "booting", "draining"))


class Observation(NamedTuple):
    """What a policy observes when it is called."""

    now_s: float  # on the clock of the trace's arrival_s
    serving: int  # instances
    booting: int
    waiting: int  # requests that have arrived and are in no batch
    running: int  # requests in a batch
    memory_share: float  # KV memory in use / capacity, over the serving instances
    arrived: int  # requests since the last call
    arrived_tokens: int  # input and output of these


Policy = Callable[[Observation], int]


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Instances of one llm on one GPU type in one region.

    `llm` and `gpu` are names in the catalogue that comes with fleetcast. A custom `profile`, in seconds,
    replaces its latencies. ValueError for an impossible number; when it is played, ConfigError for an unknown
    name, with the known ones, and for an llm that does not fit.
    """

    llm: str
    gpu: str
    instances: int = 1  # at the start
    tensor_parallel: int = 1  # GPUs of an instance
    max_instances: int | None = None  # None: as many as at the start
    boot_s: float = 60.0
    max_batch: int = 256  # requests
    max_prefill_tokens: int = 2048  # in one step
    profile: LatencyProfile | None = None

    @property
    def most_instances(self) -> int:
        """The instances that a policy can have."""
        return self.instances if self.max_instances is None else self.max_instances

    def __post_init__(self) -> None:
        for name in ("tensor_parallel", "max_batch", "max_prefill_tokens"):
            _require_whole(name, getattr(self, name), 1)
        if self.max_instances is None:
            _require_whole("instances", self.instances, 1)
        else:
            _require_whole("instances", self.instances, 0)
            _require_whole("max_instances", self.max_instances, max(1, self.instances))
        if not 0 <= self.boot_s < np.inf:
            raise ValueError(f"boot_s: got {self.boot_s!r}, needed seconds from 0 on. Change it.")

    def to_arrays(self) -> tuple[kernel_inputs.FleetArrays, kernel_inputs.Rules]:
        """Return the arrays of the kernel: one pool in one region, scaled to the targets of a policy."""
        catalogue = self._catalogue()
        defaults = load_config("office", load_catalogue())
        most = self.most_instances
        deployment = Deployment(self.gpu, self.tensor_parallel)
        config: RunConfig = dataclasses.replace(
            defaults,
            fleet=dataclasses.replace(
                defaults.fleet,
                deployments={self.llm: (deployment,)},
                instances_at_start=self.instances,
                min_instances=0,
                max_instances=most,
                max_batch=self.max_batch,
                max_prefill_tokens=self.max_prefill_tokens,
            ),
            replay=dataclasses.replace(
                defaults.replay,
                boot_spot_s=self.boot_s or 1e-9,
                boot_spot_max_s=self.boot_s,
                boot_local_s=self.boot_s,
                moves=dataclasses.replace(defaults.replay.moves, interval_s=3600.0),  # there are none
                order="fcfs",
                cascades={},
            ),
        )
        here = Region(("here",), {}, {self.gpu: most * deployment.gpus}, (self.llm,), "the one region")
        whole = complete_catalogue(catalogue, config, "Fleet")
        alone = dataclasses.replace(whole, regions={"here": here})
        return make_fleet(alone, config.fleet, config.replay, seed=0), make_rules(
            alone, config.replay, "follow"
        )

    def usd_per_hour(self) -> float:
        """Return the price of one instance in USD per hour, from the catalogue; NaN for GPUs without one."""
        return self.tensor_parallel * (load_catalogue().gpus[self.gpu].usd_per_hour or np.nan)

    def _catalogue(self) -> Catalogue:
        catalogue = add_named_llms(load_catalogue(), [self.llm], "Fleet")
        require_known(self.gpu, catalogue.gpus, "gpu", "Fleet")
        if self.profile is not None:
            profile = dataclasses.replace(
                self.profile, llm=self.llm, gpu=self.gpu, tensor_parallel=self.tensor_parallel
            )
            catalogue = dataclasses.replace(catalogue, latency=(profile,))
        return catalogue.serving([self.llm])


class Trace:
    """Requests, from a DataFrame or a file of CSV or Parquet.

    Columns: `arrival_s` in seconds, or `arrived_at` as timestamps (text in ISO 8601) or seconds since 1970;
    `input_tokens`; `output_tokens`. Other columns, the index and the order of the rows are kept. ValueError
    where one of these is missing or no such number.
    """

    def __init__(self, requests: pd.DataFrame | str | Path) -> None:
        if not isinstance(requests, pd.DataFrame):
            path = Path(requests)
            requests = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
        requests = requests.copy()
        if "arrival_s" not in requests and "arrived_at" in requests:
            at = _read_instants(requests["arrived_at"])
            requests["arrival_s"] = (at - at.min()).dt.total_seconds()
        missing = [name for name in ("arrival_s", *COLUMNS) if name not in requests]
        if missing or requests.empty:
            raise ValueError(
                f"A trace of {len(requests)} rows with the columns {', '.join(map(str, requests))} lacks "
                f"{', '.join(missing) or 'requests'}; it needs arrival_s (or arrived_at), "
                f"{' and '.join(COLUMNS)}. Rename or add them."
            )
        arrival_s = requests["arrival_s"]
        if not pd.api.types.is_numeric_dtype(arrival_s):
            raise ValueError(
                f"arrival_s: got {arrival_s.dtype}, needed seconds as numbers. Name timestamps arrived_at."
            )
        if not arrival_s.between(0, np.inf, inclusive="left").all():
            raise ValueError("arrival_s must be finite and not negative. Correct or leave out such rows.")
        for name in COLUMNS:
            _check_tokens(requests[name])
        self.requests = requests
        self.order = np.argsort(arrival_s.to_numpy(np.float64), kind="stable")  # of the rows, by arrival

    @classmethod
    def poisson(
        cls,
        requests_per_s: float,
        duration_s: float,
        input_tokens: float = 1000,
        output_tokens: float = 200,
        seed: int = 0,
    ) -> "Trace":
        """Return one or more requests at a constant rate, with exponential lengths of these means.

        ValueError for a rate, a duration or a mean that is not above 0.
        """
        for name, value in {
            "requests_per_s": requests_per_s,
            "duration_s": duration_s,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
        }.items():
            if not 0 < value < np.inf:
                raise ValueError(f"{name}: got {value!r}, needed a number above 0. Change it.")
        rng = np.random.default_rng(seed)
        count = max(1, rng.poisson(requests_per_s * duration_s))
        columns = {"arrival_s": np.sort(rng.uniform(0, duration_s, count))}
        for name, mean in zip(COLUMNS, (input_tokens, output_tokens), strict=True):
            columns[name] = np.ceil(rng.exponential(mean, count)).astype(np.int32)
        return cls(pd.DataFrame(columns))

    def to_arrays(self) -> kernel_inputs.TraceArrays:
        """Return the arrays of the kernel, in order of arrival: one llm, one region, the first tier."""
        requests = self.requests.iloc[self.order]
        lengths = (requests[name].to_numpy(np.int32) for name in COLUMNS)
        codes = np.zeros(len(requests), np.int16)
        return kernel_inputs.TraceArrays(
            requests["arrival_s"].to_numpy(np.float64), codes, codes, codes, *lengths
        )


def _require_whole(name: str, value: object, least: int) -> None:
    """Raise ValueError unless the value is a whole number from `least` on."""
    if not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}: got {value!r}, needed a whole number from {least} on. Change it.")


def _read_instants(column: "pd.Series[Any]") -> "pd.Series[pd.Timestamp]":
    """Return timestamps in UTC; ValueError with the first value that is none."""
    if pd.api.types.is_numeric_dtype(column):
        at = pd.to_datetime(column, utc=True, unit="s", errors="coerce")
    else:
        at = pd.to_datetime(column, utc=True, format="ISO8601", errors="coerce")
    bad = np.flatnonzero(at.isna())
    if bad.size:
        got = shorten_text(repr(column.tolist()[bad[0]]))
        raise ValueError(
            f"arrived_at of row {bad[0]}: got {got}, needed a timestamp in ISO 8601 or seconds since 1970. "
            "Correct or leave out such rows, or convert them to timestamps."
        )
    return at


def _check_tokens(column: "pd.Series[int]") -> None:
    """Raise ValueError with the first value that is no whole number of tokens."""
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    bad = np.flatnonzero(~((numbers >= 1) & (numbers <= MOST_TOKENS) & (numbers % 1 == 0)))
    if bad.size:
        raise ValueError(
            f"{column.name} of row {bad[0]}: got {column.iloc[bad[0]]}, needed a whole number from 1 to "
            f"{MOST_TOKENS:,}. Correct or leave out such rows."
        )


def replay(trace: Trace, fleet: Fleet, policy: Policy | None = None, every_s: float = 60.0) -> pd.DataFrame:
    """Play the trace; return its rows, in their order and with their index, and what became of them.

    policy : called every `every_s` seconds of the trace's time; it returns the number of instances that it
        wants, a whole number from 0 on (more than the fleet's max_instances stands for these); without a
        policy the fleet stays as it is

    Returns
    -------
    The trace's columns and status (finished, refused, queued), ttft_s, tpot_s, e2e_s, preemptions, instance;
    a time that does not exist is NaN. `attrs` has gpu_hours and usd from 0 s to the end of the interval with
    the last arrival, and the number of the kernel's events. ValueError for an impossible `every_s`, or where
    the policy returns no number of instances.
    """
    requests = trace.to_arrays()
    if not (every_s > 0 and requests.arrival_s[-1] / every_s <= MOST_INTERVALS):
        raise ValueError(
            f"every_s: got {every_s:g} for arrivals up to {requests.arrival_s[-1]:g} s, needed above 0 and "
            f"at most {MOST_INTERVALS:,} intervals from 0 s on. Raise it, or count arrival_s from the first "
            "arrival."
        )
    arrays, rules = fleet.to_arrays()
    session = run.Session(arrays, rules, [fleet.instances])
    session.append_trace(requests)
    end_s, now_s, wanted, instance_s = float(requests.arrival_s[-1]), 0.0, fleet.instances, 0.0
    while now_s < end_s or now_s == 0.0:
        if policy is not None:
            wanted = _wanted_instances(policy, observe_session(session, requests, now_s - every_s))
            wanted = min(wanted, fleet.most_instances)
        until_s = now_s + every_s
        usage = session.play(run.Schedule([[wanted]], hour_s=every_s), until_s)
        instance_s += float(usage.instance_s[0, 0, [SERVING, BOOTING, DRAINING]].sum())
        now_s = until_s
    session.finish(now_s + run.TAIL_PERIODS * 3600.0)
    outcome = session.outcome(*usage)
    ttft_s, e2e_s = outcome.first_token_s - requests.arrival_s, outcome.finish_s - requests.arrival_s
    gaps = requests.output_tokens - 1
    with np.errstate(invalid="ignore", divide="ignore"):
        tpot_s = np.where(gaps > 0, (e2e_s - ttft_s) / gaps, np.nan)
    results = trace.requests.iloc[trace.order].assign(
        status=np.array(ENDINGS)[outcome.status],
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        e2e_s=e2e_s,
        preemptions=outcome.preemptions,
        instance=outcome.slot,
    )
    results = results.iloc[np.argsort(trace.order)]
    hours = instance_s / 3600.0
    results.attrs = {
        "gpu_hours": hours * fleet.tensor_parallel,
        "usd": hours * fleet.usd_per_hour(),
        "events": outcome.events,
    }
    return results


def _wanted_instances(policy: Policy, seen: Observation) -> int:
    """Return the number of instances that a policy wants; ValueError where it returns no such number."""
    wanted = policy(seen)
    is_number = isinstance(wanted, int | float | np.integer | np.floating) and not isinstance(wanted, bool)
    if not (is_number and 0 <= wanted < np.inf and int(wanted) == wanted):
        name, got = getattr(policy, "__name__", type(policy).__name__), " ".join(repr(wanted).split())
        raise ValueError(
            f"policy {name} at {seen.now_s:g} s: got {shorten_text(got)}, needed a whole number of "
            "instances, at least 0. Change what it returns."
        )
    return int(wanted)


def observe_session(session: run.Session, requests: kernel_inputs.TraceArrays, since_s: float) -> Observation:
    """Return what a policy observes of a session now; arrivals are counted from `since_s` on."""
    progress, instance, pool = session.state.progress, session.state.instance, session.state.pool
    serving, booting = session.instances()[0, [SERVING, BOOTING]].tolist()
    running = int(instance["batch"].sum() + instance["joining"].sum())
    arrived = int(progress.arrived)
    first = int(np.searchsorted(requests.arrival_s, since_s))
    tokens = requests.input_tokens[first:arrived].sum() + requests.output_tokens[first:arrived].sum()
    used, room = int(pool["kv_used"][0]), int(pool["kv_room"][0])
    return Observation(
        now_s=float(progress.now_s),
        serving=serving,
        booting=booting,
        waiting=arrived - int(progress.ended) - running,
        running=running,
        memory_share=used / room if room else 0.0,
        arrived=arrived - first,
        arrived_tokens=int(tokens),
    )
