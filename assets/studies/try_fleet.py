"""Replay a trace file on fleets from the command line: percentiles, attainment and cost, without a config.

8 x llama3.1-8b@h100-80gb                      eight instances, each on the fewest GPUs that hold it
4 x llama3.1-70b@4xh100-80gb + 8 x llama3.1-8b@h100-80gb
llama3.1-70b@config                            those that --config deploys, at their instances_at_start
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.figure_files import draw_and_save_figure
from fleetcast.assets.replays.replay_figures import draw_cdf
from fleetcast.assets.replays.replay_workloads import prompt_arrays
from fleetcast.assets.traces.bulk_refusals import bulk_remedy
from fleetcast.assets.traces.ingest import IngestReport
from fleetcast.assets.traces.landing import land_file
from fleetcast.assets.traces.trace_mapping import mapping_file
from fleetcast.models.aliases import Floats
from fleetcast.models.latency.profile_order import complete_catalogue, find_profile
from fleetcast.models.metrics import is_tier_slo_met, known_percentile_s, tpot_s, waited_percentile_s
from fleetcast.models.replay.kernel_inputs import FleetArrays, TraceArrays
from fleetcast.models.replay.session.outcome import Outcome
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet, replay_fixed_fleet
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment, FleetConfig
from fleetcast.models.world.instance_kv_memory import longest_request_tokens
from fleetcast.models.world.mechanisms import Ending
from fleetcast.models.world.named_llms import add_named_llms
from fleetcast.models.world.toml_dataclasses import ConfigError, read_toml, require_known

POOL_PATTERN = re.compile(r"\s*(\d{1,5})\s*x\s*([^@\s]+)\s*@\s*(?:(\d{1,4})\s*x\s*)?(\S+)\s*")
OF_CONFIG = "@config"
LEAST_BLOCKS, BLOCK_TOLERANCE = 4, 0.2  # of a prompt that shows the tokens of a block; of that size
DEFAULT_DEGREES = (1, 2, 4, 8)  # candidate GPUs per instance, where latency.toml has none
LEAST_KV_TOKENS = 16_384  # of an instance without a given number of GPUs: a few requests
BINS = 400  # points of a CDF curve
FRONTEND_S = 0.0062  # takes the median TTFT error of 20 runs of vLLM on H100 from 14.6 to 2.6 %
TIMED_SOURCES = ("measured", "calibrated")  # profiles whose times contain a front end, if there was one


class TryPool(NamedTuple):
    """Identical instances of a fleet: how many, of which llm, on which deployment."""

    instances: int
    llm: str
    deployment: Deployment


class FleetTrial(NamedTuple):
    """The replay of one fleet."""

    fleet: str
    row: dict[str, float]  # metrics by name
    ttft_s: Floats  # (R,) seconds to the first token, NaN without one


def add_fleet_llms(
    catalogue: Catalogue, texts: Iterable[str], others: Iterable[str] = (), where: str = "--fleet"
) -> Catalogue:
    """Return the catalogue with the llms of fleets, and others, that are named by their model.

    ConfigError for an unknown one, which begins with the fleet, or with `where` for the others.
    """
    for text in texts:
        parts = [part.strip() for part in text.split("+")]
        pools = [match.group(2) for part in parts if (match := POOL_PATTERN.fullmatch(part))]
        of_config = [part.removesuffix(OF_CONFIG) for part in parts if part.endswith(OF_CONFIG)]
        catalogue = add_named_llms(catalogue, [*of_config, *pools], f"--fleet {text!r}")
    return add_named_llms(catalogue, others, where)


def parse_fleet(text: str, catalogue: Catalogue, config: RunConfig) -> list[TryPool]:
    """Parse a fleet; ConfigError names what is unknown, malformed or does not fit."""
    pools = list[TryPool]()
    for part in text.split("+"):
        if part.strip().endswith(OF_CONFIG):
            pools += parse_config_pools(text, part.strip().removesuffix(OF_CONFIG), catalogue, config)
            continue
        match = POOL_PATTERN.fullmatch(part)
        if match is None:
            raise ConfigError(
                f"--fleet {text!r}: {part.strip()!r} is not a pool. Write COUNT x LLM@GPU, like 8 x "
                "llama3.1-8b@h100-80gb, or LLM@4xGPU for four GPUs per instance; join pools with +."
            )
        count, llm, gpus, gpu = match.groups()
        require_known(llm, catalogue.llms, "llm", f"--fleet {text!r}")
        require_known(gpu, catalogue.gpus, "gpu", f"--fleet {text!r}")
        if int(count) < 1:
            raise ConfigError(f"--fleet {text!r}: {part.strip()!r} has no instance. Give it one or more.")
        if llm in (pool.llm for pool in pools):
            raise ConfigError(f"--fleet {text!r}: {llm} is named twice. Give it one pool.")
        degree = int(gpus) if gpus else min_tensor_parallel(llm, gpu, catalogue, config)
        find_profile(catalogue, llm, gpu, degree)
        pools.append(TryPool(int(count), llm, Deployment(gpu, degree)))
    return pools


def parse_config_pools(text: str, llm: str, catalogue: Catalogue, config: RunConfig) -> list[TryPool]:
    """Return the pools that a config deploys for an llm; ConfigError where it deploys none."""
    require_known(llm, catalogue.llms, "llm", f"--fleet {text!r}")
    require_known(llm, config.fleet.deployments, "deployed llm", f"--fleet {text!r}")
    return [TryPool(config.fleet.limits(pool)[0], llm, pool) for pool in config.fleet.deployments[llm]]


def complete_for_fleets(
    catalogue: Catalogue, fleets: Iterable[Sequence[TryPool]], config: RunConfig
) -> Catalogue:
    """Return the catalogue with a profile of each pool of the fleets, up to the config's largest batch."""
    deployments: dict[str, tuple[Deployment, ...]] = {}
    for pool in (pool for pools in fleets for pool in pools):
        deployments[pool.llm] = (*deployments.get(pool.llm, ()), pool.deployment)
    fleet = dataclasses.replace(config.fleet, deployments=deployments)
    return complete_catalogue(catalogue, dataclasses.replace(config, fleet=fleet), "--fleet")


def min_tensor_parallel(llm: str, gpu: str, catalogue: Catalogue, config: RunConfig) -> int:
    """Return the fewest GPUs of a type that hold the llm and a KV cache.

    The degrees of latency.toml come first. An llm without any there must have room for LEAST_KV_TOKENS.
    """
    known = sorted(p.tensor_parallel for p in catalogue.latency if (p.llm, p.gpu) == (llm, gpu))
    usable = [degree for degree in DEFAULT_DEGREES if catalogue.llms[llm].heads % degree == 0]
    least = 1 if known else LEAST_KV_TOKENS
    for degree in known or usable:
        try:
            if longest_request_tokens(catalogue, config.fleet, llm, gpu, degree) >= least:
                return degree
        except ConfigError:
            continue
    raise ConfigError(
        f"{llm} does not fit on {', '.join(map(str, known or usable))} x {gpu}. Name larger GPUs, or more."
    )


def with_frontend(
    config: RunConfig, pools: Sequence[TryPool], catalogue: Catalogue, given_s: float | None
) -> RunConfig:
    """Return the config with the front end of a fleet, in seconds.

    It is the given one, else that of the config, else FRONTEND_S. A fleet with a profile that was measured on
    a whole engine has none by default. ConfigError for a value outside 0 to 60 s.
    """
    if given_s is not None and not 0 <= given_s <= 60:
        raise ConfigError(f"--frontend-s is {given_s:g} s, must be from 0 to 60. Give seconds.")
    profiles = [
        catalogue.as_served(llm, pool.llm_changes).profile(llm, pool.gpu, pool.tensor_parallel)
        for _, llm, pool in pools
    ]
    is_timed = any(profile.source.startswith(TIMED_SOURCES) for profile in profiles)
    frontend_s = config.fleet.frontend_s or (0.0 if is_timed else FRONTEND_S)
    fleet = dataclasses.replace(config.fleet, frontend_s=frontend_s if given_s is None else given_s)
    return dataclasses.replace(config, fleet=fleet)


def with_prefix_of_file(config: RunConfig, rows: pd.DataFrame) -> tuple[RunConfig, str]:
    """Return the config with the prefix cache that the requests have data for, and a line that says so.

    Recorded hits come before prefix hashes. Hashes of blocks of another size than the config's
    `prefix_block_tokens` are not used. The line is empty if the config or the requests have none.
    """
    if config.fleet.prefix != "none":
        return config, ""
    if (hits := rows["cached_tokens"].fillna(0)).any():
        share = hits.sum() / rows["input_tokens"].sum()
        found = f"hits as the file has them, {share:.0%} of the input tokens"
        return _with_prefix(config, "given"), f"prefix cache  {found} (--prefix none: without)"
    hashes = pa.Table.from_pandas(rows[["prefix_hashes"]])["prefix_hashes"]
    if hashes.null_count == len(rows):
        return config, ""
    blocks = pc.list_value_length(hashes).to_numpy()
    is_long = blocks >= LEAST_BLOCKS
    if not is_long.any():
        return config, ""
    tokens = float((rows["input_tokens"] / blocks)[is_long].median())
    assumed = config.fleet.prefix_block_tokens
    if abs(tokens / assumed - 1) > BLOCK_TOLERANCE:
        return config, (
            f"prefix cache  none: the file's blocks have some {tokens:,.0f} tokens, [fleet] "
            f"prefix_block_tokens is {assumed}. Give a config with the file's size, and --prefix blocks."
        )
    line = "prefix cache  by the file's prefix hashes (--prefix none: without)"
    return _with_prefix(config, "blocks"), line


def _with_prefix(config: RunConfig, prefix: str) -> RunConfig:
    return dataclasses.replace(config, fleet=dataclasses.replace(config.fleet, prefix=prefix))


class TryRequests(NamedTuple):
    """The requests of a trace file."""

    report: IngestReport
    rows: pd.DataFrame  # arrival_s, llm, tier, tokens, prefix_hashes, session_id; in order of arrival
    tier_note: str = ""  # which tier was assumed, in words


def read_file_requests(
    path: Path,
    catalogue: Catalogue,
    scratch: Path,
    progress: Progress,
    columns: Mapping[str, str] | None = None,
) -> TryRequests:
    """Land a file in a scratch lake and read its requests back; ConfigError if it has none.

    Requests whose tier nothing says are of the strictest one, as `fleetcast advise` reads them.
    """
    lake = Lake(scratch / "lake")
    report = land_file(path, lake, catalogue, progress, columns)
    rows = frame_requests(
        lake.sql(
            "select epoch(arrived_at) as arrival_s, llm, tier, input_tokens, output_tokens, cached_tokens, "
            "prefix_hashes, session_id, tier_source = 'dealt' as is_distributed from requests "
            "order by arrived_at, request_id"
        )
    )
    is_distributed = rows.pop("is_distributed").to_numpy(bool)
    mapping, strictest, note = mapping_file(path), catalogue.strictest, ""
    is_mapped = mapping.is_file() and "tier" in read_toml(mapping)
    if is_distributed.any() and not is_mapped:
        rows.loc[is_distributed, "tier"] = strictest
        note = f"tier {strictest} for {is_distributed.sum():,} requests whose tier the file does not have"
    if rows.empty:
        reasons = "; ".join(f"{why} ({rows:,} rows)" for why, rows in report.reasons.items())
        none = f"{path.name}: none of its {report.rows_in:,} rows is a request: {reasons}."
        raise ConfigError(bulk_remedy(report, path.parent) or none)
    return TryRequests(report, rows, note)


def frame_requests(table: pa.Table) -> pd.DataFrame:
    """Return requests in order of arrival, which count from the first one; hashes stay in Arrow's lists."""
    rows = table.to_pandas(types_mapper=lambda of: pd.ArrowDtype(of) if pa.types.is_list(of) else None)
    return rows.assign(arrival_s=rows["arrival_s"] - rows["arrival_s"].min())


def run_fleet_trial(
    text: str, pools: Sequence[TryPool], requests: pd.DataFrame, catalogue: Catalogue, config: RunConfig
) -> FleetTrial:
    """Replay the requests on a fleet of fixed size; ConfigError if the fleet lacks one of their llms.

    A fleet of one llm takes the requests for all llms.
    """
    llms = list(dict.fromkeys(pool.llm for pool in pools))
    fleet_catalogue = complete_for_fleets(catalogue, [pools], config)
    fleet_catalogue = dataclasses.replace(fleet_catalogue, llms={llm: catalogue.llms[llm] for llm in llms})
    sized: dict[str, list[tuple[Deployment, int]]] = {llm: [] for llm in llms}
    for pool in pools:
        sized[pool.llm].append((pool.deployment, pool.instances))
    fleet = fixed_fleet(sized, fleet_catalogue, config)
    trace = build_request_arrays(requests, catalogue, config.fleet, "the file")
    if len(llms) > 1:
        trace = trace._replace(llm=llm_codes(requests, llms, text))
    until_s = float(trace.arrival_s[-1]) + 1.0
    rules = make_rules(fleet_catalogue, config.replay, "follow")
    outcome = replay_fixed_fleet(trace, fleet, rules, until_s)
    return FleetTrial(
        text,
        fleet_trial_row(trace, fleet, outcome, catalogue, until_s),
        outcome.first_token_s - trace.arrival_s,
    )


def build_request_arrays(
    rows: pd.DataFrame, catalogue: Catalogue, fleet: FleetConfig, source: str
) -> TraceArrays:
    """Return requests, as `frame_requests` has them, as arrays of one llm; `source`: of them, in an error."""
    zeros = np.zeros(len(rows), np.int16)
    prompts = pa.Table.from_pandas(rows.drop(columns=["arrival_s", "llm", "tier"]))
    return TraceArrays(
        arrival_s=np.array(rows["arrival_s"], float),
        region=zeros,
        llm=zeros,
        tier=index_names(rows["tier"], catalogue.tiers),
        input_tokens=np.array(rows["input_tokens"], np.int32),
        output_tokens=np.array(rows["output_tokens"], np.int32),
        **prompt_arrays(prompts, fleet, "--prefix", source),
    )


def llm_codes(requests: pd.DataFrame, llms: Sequence[str], text: str) -> NDArray[np.int16]:
    """Return each request's index into `llms`, shape (R,); ConfigError if the fleet lacks an llm."""
    missing = sorted(set(requests["llm"]) - set(llms))
    if missing:
        raise ConfigError(
            f"--fleet {text!r} has no {', '.join(missing)}, which "
            f"{requests['llm'].isin(missing).sum():,} requests need. Add it, or name only one llm, which "
            "then takes all requests."
        )
    return index_names(requests["llm"], llms)


def index_names(names: pd.Series, known: Iterable[str]) -> NDArray[np.int16]:
    """Return the index of each name in `known`, shape (R,); -1 for an unknown name."""
    return pd.Index(list(known)).get_indexer(pd.Index(names)).astype(np.int16)


def fleet_trial_row(
    trace: TraceArrays, fleet: FleetArrays, outcome: Outcome, catalogue: Catalogue, until_s: float
) -> dict[str, float]:
    """Return percentiles in s, attainment by tier, GPU-hours and USD from 0 to `until_s`, by name.

    A request that never had its first or last token counts as the longest in TTFT or E2E. USD is NaN where a
    GPU type has no price.
    """
    ttft_s, e2e_s = outcome.first_token_s - trace.arrival_s, outcome.finish_s - trace.arrival_s
    done = outcome.status == Ending.FINISHED
    request_tpot_s = tpot_s(ttft_s, e2e_s, trace.output_tokens)
    row = {}
    for level in (50, 95, 99):
        row[f"ttft_p{level}_s"] = waited_percentile_s(ttft_s, level)
        row[f"tpot_p{level}_s"] = known_percentile_s(request_tpot_s, level)
        row[f"e2e_p{level}_s"] = waited_percentile_s(e2e_s, level)
    for code, (name, tier) in enumerate(catalogue.tiers.items()):
        of_tier = trace.tier == code
        if of_tier.any():
            met = is_tier_slo_met(tier, ttft_s[of_tier], e2e_s[of_tier], trace.output_tokens[of_tier])
            row[f"{name}_attainment_share"] = float(met.mean())
    instances = np.diff(fleet.slots)
    gpus = instances * fleet.gpus[fleet.kind]
    prices = [gpu.usd_per_hour or np.nan for gpu in catalogue.gpus.values()]  # 0: it has none
    usd = np.array(prices)[fleet.gpu[fleet.kind]]
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
    path: Path, trials: Sequence[FleetTrial], requests: pd.DataFrame, catalogue: Catalogue
) -> Path | None:
    """Draw the CDF of TTFT in the strictest tier, one line per fleet, into the current folder.

    None if no tier has a TTFT target.
    """
    tier = catalogue.strictest_tier(set(requests["tier"]))
    if tier is None:
        return None
    of_tier, slo_s = (requests["tier"] == tier).to_numpy(), catalogue.tiers[tier].ttft_slo_s
    curves = pd.concat(ttft_curve(trial.fleet, trial.ttft_s[of_tier]) for trial in trials)
    target = Path.cwd() / f"{path.name}.png"
    draw_and_save_figure(target, path.name, lambda: draw_cdf(curves, "ttft_s", tier, float(slo_s or 0)))
    return target


def ttft_curve(fleet: str, ttft_s: Floats) -> pd.DataFrame:
    """Return the share of requests with a first token by each of BINS times; `ttft_s`: seconds, (R,)."""
    known = np.sort(ttft_s[~np.isnan(ttft_s)])
    if not known.size:
        return pd.DataFrame({"policy": [fleet], "ttft_s": [1.0], "cumulated_share": [0.0]})
    edges = np.geomspace(max(known[0], 1e-3), known[-1] + 1e-3, BINS)
    share = np.searchsorted(known, edges, side="right") / ttft_s.size
    return pd.DataFrame({"policy": fleet, "ttft_s": edges, "cumulated_share": share})


def attainment_keys(trials: Sequence[FleetTrial], catalogue: Catalogue) -> Mapping[str, str]:
    """Return the key of the attainment of each tier that any trial has one for."""
    keys = {name: f"{name}_attainment_share" for name in catalogue.tiers}
    return {name: key for name, key in keys.items() if any(key in trial.row for trial in trials)}
