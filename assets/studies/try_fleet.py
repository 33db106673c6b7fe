"""A trace file on fleets that somebody names: percentiles, attainment and cost, without a config.

8 x llama3.1-8b@h100-80gb                      eight instances, each on as few GPUs as hold it
4 x llama2-70b@4xh100-80gb + 8 x llama3.1-8b@h100-80gb
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.figure_files import draw_and_save_figure
from fleetcast.assets.replays.replay_figures import draw_cdf
from fleetcast.assets.replays.replay_workloads import prompt_arrays
from fleetcast.assets.traces.ingest import IngestReport
from fleetcast.assets.traces.landing import land_file
from fleetcast.models.metrics import is_tier_slo_met, tpot_s
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens
from fleetcast.models.world.mechanisms import Ending
from fleetcast.models.world.project_paths import HOME
from fleetcast.models.world.toml_dataclasses import ConfigError, require_known

FIGURES = HOME / "data" / "figures" / "try"
POOL_PATTERN = re.compile(r"\s*(\d{1,5})\s*x\s*([^@\s]+)\s*@\s*(?:(\d{1,4})\s*x\s*)?(\S+)\s*")
BINS = 400  # of a distribution's curve


class TryPool(NamedTuple):
    """Like instances of a fleet."""

    instances: int
    llm: str
    deployment: Deployment


class FleetTrial(NamedTuple):
    """What came of a fleet: a row for the board, and of each request its time to the first token."""

    fleet: str
    row: dict[str, float]
    ttft_s: np.ndarray


def parse_fleet(text: str, catalogue: Catalogue, config: RunConfig) -> list[TryPool]:
    """Read a fleet; ConfigError says what of it is not known, or does not fit."""
    pools = list[TryPool]()
    for part in text.split("+"):
        found = POOL_PATTERN.fullmatch(part)
        if found is None:
            raise ConfigError(
                f"--fleet {text!r}: {part.strip()!r} is no pool. Write COUNT x LLM@GPU, like 8 x "
                "llama3.1-8b@h100-80gb, or LLM@4xGPU for four GPUs an instance; join pools by +."
            )
        count, llm, gpus, gpu = found.groups()
        require_known(llm, catalogue.llms, "llm", f"--fleet {text!r}")
        require_known(gpu, catalogue.gpus, "gpu", f"--fleet {text!r}")
        if int(count) < 1:
            raise ConfigError(f"--fleet {text!r}: {part.strip()!r} has no instance. Give it one or more.")
        if llm in (pool.llm for pool in pools):
            raise ConfigError(f"--fleet {text!r}: {llm} stands there twice. Give it one pool.")
        degree = int(gpus) if gpus else min_tensor_parallel(llm, gpu, catalogue, config)
        catalogue.profile(llm, gpu, degree)
        pools.append(TryPool(int(count), llm, Deployment(gpu, degree)))
    return pools


def min_tensor_parallel(llm: str, gpu: str, catalogue: Catalogue, config: RunConfig) -> int:
    """The fewest GPUs of a type with a profile that hold the llm and a request's cache."""
    known = sorted(p.tensor_parallel for p in catalogue.latency if (p.llm, p.gpu) == (llm, gpu))
    for degree in known:
        try:
            kv_capacity_tokens(catalogue, config.fleet, llm, gpu, degree)
        except ConfigError:
            continue
        return degree
    catalogue.profile(llm, gpu, 1)  # says that there is none, and what to do
    raise ConfigError(f"{llm} does not fit on any number of {gpu} that has a profile ({known}).")


class TryRequests(NamedTuple):
    """The requests of a file."""

    report: IngestReport
    rows: pd.DataFrame  # arrival_s, llm, tier, tokens and what prompts share; in order of arrival


def read_file_requests(path: Path, catalogue: Catalogue, scratch: Path, progress: Progress) -> TryRequests:
    """Land a file in a lake of its own and read its requests back."""
    lake = Lake(scratch / "lake")
    report = land_file(path, lake, catalogue, progress)
    rows = lake.sql(
        "select epoch(arrived_at) as arrival_s, llm, tier, input_tokens, output_tokens, cached_tokens, "
        "prefix_hashes from requests order by arrived_at, request_id"
    ).to_pandas(types_mapper=lambda of: pd.ArrowDtype(of) if pa.types.is_list(of) else None)
    if rows.empty:
        raise ConfigError(f"{path.name}: none of its {report.rows_in:,} rows is a request. {report.reasons}")
    return TryRequests(report, rows.assign(arrival_s=rows["arrival_s"] - rows["arrival_s"].iloc[0]))


def run_fleet_trial(
    text: str, pools: Sequence[TryPool], asked: pd.DataFrame, catalogue: Catalogue, config: RunConfig
) -> FleetTrial:
    """Replay the requests on a fleet that always serves; those of an llm that it lacks are refused.

    A fleet of one llm takes the requests for all.
    """
    llms = [pool.llm for pool in pools]
    alone = dataclasses.replace(catalogue, llms={llm: catalogue.llms[llm] for llm in llms})
    sized = {pool.llm: [(pool.deployment, pool.instances)] for pool in pools}
    fleet = fixed_fleet(sized, alone, config)
    shared = pa.Table.from_pandas(asked[["input_tokens", "cached_tokens", "prefix_hashes"]])
    llm = np.zeros(len(asked), np.int16) if len(llms) == 1 else llm_codes(asked, llms, text)
    trace = TraceArrays(
        arrival_s=asked["arrival_s"].to_numpy(float),
        region=np.zeros(len(asked), np.int16),
        llm=llm,
        tier=index_names(asked["tier"], catalogue.tiers),
        input_tokens=asked["input_tokens"].to_numpy(np.int32),
        output_tokens=asked["output_tokens"].to_numpy(np.int32),
        **prompt_arrays(shared, config.fleet.prefix, "--prefix", "the file"),
    )
    until_s = float(trace.arrival_s[-1]) + 1.0
    rules = make_rules(alone, config.replay, "follow")
    outcome = replay_trace(trace, fleet, Schedule(np.diff(fleet.slots), hour_s=until_s), rules, until_s)
    return FleetTrial(
        text,
        fleet_trial_row(trace, fleet, outcome, catalogue, until_s),
        outcome.first_token_s - trace.arrival_s,
    )


def llm_codes(asked: pd.DataFrame, llms: Sequence[str], text: str) -> NDArray[np.int16]:
    """The place of each request's llm in the fleet; ConfigError where the fleet lacks it."""
    lacking = sorted(set(asked["llm"]) - set(llms))
    if lacking:
        raise ConfigError(
            f"--fleet {text!r} has no {', '.join(lacking)}, which "
            f"{asked['llm'].isin(lacking).sum():,} requests ask for. Add it, or name one llm alone, which "
            "takes all requests."
        )
    return index_names(asked["llm"], llms)


def index_names(names: pd.Series, known: Iterable[str]) -> NDArray[np.int16]:
    """Where each name stands among those that are known."""
    return pd.Index(list(known)).get_indexer(pd.Index(names)).astype(np.int16)


def fleet_trial_row(
    trace: TraceArrays, fleet: FleetArrays, outcome: Outcome, catalogue: Catalogue, until_s: float
) -> dict[str, float]:
    """Percentiles in seconds, attainment by tier, GPU-hours and USD while requests came."""
    ttft_s, e2e_s = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
    done = outcome.status == Ending.FINISHED
    times = {"ttft": ttft_s, "tpot": tpot_s(ttft_s, e2e_s, trace.output_tokens), "e2e": e2e_s}
    row = {
        f"{name}_p{level}_s": float(np.nanquantile(of[done], level / 100)) if done.any() else np.nan
        for name, of in times.items()
        for level in (50, 95, 99)
    }
    for code, (name, tier) in enumerate(catalogue.tiers.items()):
        own = trace.tier == code
        if own.any():
            met = is_tier_slo_met(tier, ttft_s[own], e2e_s[own], trace.output_tokens[own])
            row[f"{name}_attainment_share"] = float(met.mean())
    instances = np.diff(fleet.slots)
    gpus = instances * fleet.gpus[fleet.kind]
    usd = np.array([gpu.usd_per_hour for gpu in catalogue.gpus.values()])[fleet.gpu[fleet.kind]]
    hours = until_s / 3600.0
    return row | {
        "gpus": float(gpus.sum()),
        "gpu_hours": float(gpus.sum()) * hours,
        "usd": float((gpus * usd).sum()) * hours,
        "reused_share": float(outcome.reused.sum() / trace.input_tokens.sum()),
        "refused": float((outcome.status == Ending.REFUSED).sum()),
        "unfinished": float((~done).sum() - (outcome.status == Ending.REFUSED).sum()),
    }


def draw_ttft_cdf(
    path: Path, tried: Sequence[FleetTrial], asked: pd.DataFrame, catalogue: Catalogue
) -> Path | None:
    """Times to the first token in the tier with the strictest target, a line a fleet; None without one."""
    tier = catalogue.strictest_tier(set(asked["tier"]))
    if tier is None:
        return None
    own, slo_s = (asked["tier"] == tier).to_numpy(), catalogue.tiers[tier].ttft_slo_s
    curves = pd.concat(ttft_curve(one.fleet, one.ttft_s[own]) for one in tried)
    target = FIGURES / f"{path.name}.png"
    draw_and_save_figure(target, path.name, lambda: draw_cdf(curves, "ttft_s", tier, float(slo_s or 0)))
    return target


def ttft_curve(fleet: str, ttft_s: np.ndarray) -> pd.DataFrame:
    """The share of all requests that had their first token by each of BINS times."""
    known = np.sort(ttft_s[~np.isnan(ttft_s)])
    if not known.size:
        return pd.DataFrame({"policy": [fleet], "ttft_s": [1.0], "share": [0.0]})
    edges = np.geomspace(max(known[0], 1e-3), known[-1] + 1e-3, BINS)
    share = np.searchsorted(known, edges, side="right") / ttft_s.size
    return pd.DataFrame({"policy": fleet, "ttft_s": edges, "share": share})


def attainment_keys(tried: Sequence[FleetTrial], catalogue: Catalogue) -> Mapping[str, str]:
    """The tiers that have an attainment, and its key."""
    keys = {name: f"{name}_attainment_share" for name in catalogue.tiers}
    return {name: key for name, key in keys.items() if any(key in one.row for one in tried)}
