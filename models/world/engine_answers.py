"""Deployments from answers of `fleetcast configure`, which [fleet] engines of a config names.

The best engine of an answer and the others in its table become deployments of its llm, without an instance at
the start: a plan starts them where they are cheaper. One that the config deploys already adds nothing. A
deployment has what an engine sets itself; the router and the prefix cache are those of the config. So engines
below [fleet] quality_floor or with another prefix cache are left out, with a warning.
"""

import dataclasses
import json
import math
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import (
    SERVED_KEYS,
    VLLM,
    BackendName,
    CacheBits,
    Llm,
    WeightBits,
)
from fleetcast.models.world.catalogue_overrides import LATENCY_SOURCE, PACKAGE_SOURCE
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import (
    AcceptanceRates,
    DataParallelSize,
    Deployment,
    DraftSeconds,
    FleetConfig,
    MaxBatch,
    PrefillTokens,
)
from fleetcast.models.world.mechanisms import PREFIXES
from fleetcast.models.world.quality_floor import FLOOR_BITS, allowed_cache_bits, least_weight_bits
from fleetcast.models.world.toml_dataclasses import (
    MAX_BYTES,
    ConfigError,
    ConfigWarning,
    KnownName,
    Range,
    build_dataclass,
    require_known,
    shorten_text,
)

ANSWER_VERSION = 1  # of answer.json; higher where a key that is read here changes
BIT_NAMES = {bits: name for name, bits in FLOOR_BITS.items()}
ROLES_APART = ("prefill", "decode")


@dataclass(frozen=True)
class AnsweredPool:
    """Instances of a role in an answered engine."""

    gpu: str
    tensor_parallel: Annotated[int, Range(1, 1024)]
    pipeline_parallel: Annotated[int, Range(1, 64)]
    instances: Annotated[int, Range(1, 10_000)]
    data_parallel_size: DataParallelSize = 1


@dataclass(frozen=True)
class AnsweredEngine:
    """The keys of an engine in answer.json that make a deployment."""

    weight_bits: WeightBits
    kv_bits: CacheBits
    is_expert_parallel: bool
    pools: tuple[AnsweredPool, ...]  # whole; or prefill, then decode
    max_batch: MaxBatch
    token_budget: PrefillTokens
    prefix: Annotated[str, KnownName("prefix", PREFIXES)]
    speculative_acceptance: AcceptanceRates
    speculative_draft_s: DraftSeconds
    backend: BackendName = VLLM


def add_answered_engines(config: RunConfig, catalogue: Catalogue) -> RunConfig:
    """Return the config with the deployments of its [fleet] engines; unchanged without any.

    `catalogue` has the changes of the config. ConfigError, in one line, for a file that is no answer of this
    version, an llm that the config does not deploy, an unknown GPU type, and profiles of several sources.
    """
    fleet, where = config.fleet, f"{config.file.name} [fleet] engines"
    if not fleet.engines:
        return config
    if config.catalogue.get(LATENCY_SOURCE) != PACKAGE_SOURCE:
        raise ConfigError(
            f"{where}: answers compare engines by {PACKAGE_SOURCE}, so all deployments need its profiles. "
            f'Add {LATENCY_SOURCE} = "{PACKAGE_SOURCE}" to [catalogue].'
        )
    deployments, left_out = dict(fleet.deployments), defaultdict[str, list[str]](list)
    for name in fleet.engines:
        path = config.file.parent / os.path.expanduser(name)
        llm, engines = read_engine_answer(path, where)
        require_known(llm, deployments, "deployed llm", f"{where} {path.name}")
        for engine in engines:
            for pool in engine.pools:
                require_known(pool.gpu, catalogue.gpus, "gpu", f"{where} {path.name}")
            if reason := refusal_reason(engine, catalogue.llms[llm], fleet):
                left_out[reason].append(engine_name(engine, engine.pools[0]))
                continue
            pools = engine_deployments(engine, catalogue, llm, fleet, f"team-{len(deployments[llm])}")
            known = {engine_identity(fleet, pool) for pool in deployments[llm]}
            if not known.issuperset(engine_identity(fleet, pool) for pool in pools):
                deployments[llm] = (*deployments[llm], *pools)
    if left_out:
        reasons = [f"{', '.join(dict.fromkeys(names))} ({reason})" for reason, names in left_out.items()]
        warnings.warn(f"{where}: left out {'; '.join(reasons)}.", ConfigWarning, stacklevel=2)
    return dataclasses.replace(config, fleet=dataclasses.replace(fleet, deployments=deployments))


def read_engine_answer(path: Path, where: str) -> tuple[str, list[AnsweredEngine]]:
    """Return the llm of an answer and its engines, the best first; ConfigError where it is no answer."""
    remedy = "Name the answer.json that `fleetcast configure` wrote."
    try:
        with path.open(encoding="utf-8") as file:
            answer = json.loads(file.read(MAX_BYTES))  # what is longer is cut, and then no JSON
    except OSError as error:
        raise ConfigError(
            f"{where}: {shorten_text(str(path))} cannot be read: {error.strerror}. {remedy}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {path.name} is no JSON. {remedy}") from error
    if not isinstance(answer, dict) or not {"llm", "best", "others"} <= answer.keys():
        raise ConfigError(f"{where}: {path.name} is no answer. {remedy}")
    if (version := answer.get("version")) != ANSWER_VERSION:
        raise ConfigError(
            f"{where}: {path.name} is of version {str(version)[:20]}, needed {ANSWER_VERSION}. Make it "
            f"again: fleetcast configure {str(answer['llm'])[:60]}"
        )
    others = answer["others"] if isinstance(answer["others"], list) else [answer["others"]]
    return str(answer["llm"]), [
        parse_engine(entry, f"{where}: {path.name} {name}")
        for name, entry in [("best", answer["best"]), *((f"others {n}", o) for n, o in enumerate(others))]
    ]


def parse_engine(entry: Any, where: str) -> AnsweredEngine:
    """Return an engine of an answer; ConfigError for a key that is missing or out of range."""
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: got {str(entry)[:60]!r}, needed a table. Make the answer again.")
    keys = {field.name for field in dataclasses.fields(AnsweredEngine)}
    engine: AnsweredEngine = build_dataclass(
        AnsweredEngine, {key: value for key, value in entry.items() if key in keys}, where
    )
    if not 1 <= len(engine.pools) <= len(ROLES_APART):
        raise ConfigError(f"{where} pools: got {len(engine.pools)}, needed 1 or 2. Make the answer again.")
    return engine


def refusal_reason(engine: AnsweredEngine, arch: Llm, fleet: FleetConfig) -> str:
    """Return why an engine may not run in a fleet, by its quality floor or prefix cache; "" where it may."""
    least = least_weight_bits(arch, fleet.quality_floor)
    if engine.weight_bits < least or engine.kv_bits not in allowed_cache_bits(least):
        return f"below quality_floor {fleet.quality_floor or BIT_NAMES.get(least, f'of {least} bits')}"
    if engine.prefix != fleet.prefix:
        return f"needs prefix {engine.prefix}, [fleet] has {fleet.prefix}"
    return ""


def engine_deployments(
    engine: AnsweredEngine, catalogue: Catalogue, llm: str, fleet: FleetConfig, team_name: str
) -> list[Deployment]:
    """Return the pool of an engine; where prefill and decode are apart, the two pools of a team.

    A team has the ratio of instances of the answer, in its lowest terms. It runs where all its GPUs are.
    """
    arch, apart = catalogue.llms[llm], len(engine.pools) > 1
    changes: Mapping[str, Any] = {
        key: value for key in SERVED_KEYS if (value := getattr(engine, key)) != getattr(arch, key)
    }
    counts = [pool.instances for pool in engine.pools]
    team = [count // math.gcd(*counts) for count in counts]
    teams = max(1, fleet.max_instances // max(team))
    regions = tuple(list_team_regions(engine.pools, catalogue)) if apart else None
    return [
        Deployment(
            pool.gpu,
            pool.tensor_parallel,
            role=ROLES_APART[n] if apart else "whole",
            name=team_name if apart and n else None,
            then=team_name if apart and not n else None,
            regions=regions,
            pipeline_parallel=pool.pipeline_parallel,
            data_parallel_size=pool.data_parallel_size,
            team=team[n] if apart else 0,
            instances_at_start=0,
            min_instances=0,
            max_instances=teams * team[n] if apart else None,
            batching="chunked",
            max_batch=engine.max_batch,
            max_prefill_tokens=engine.token_budget,
            async_scheduling=not engine.speculative_acceptance,  # as in the search
            speculative_acceptance=engine.speculative_acceptance,
            speculative_draft_s=engine.speculative_draft_s,
            engine=engine_name(engine, pool),
            **changes,
        )
        for n, pool in enumerate(engine.pools)
    ]


def list_team_regions(pools: Sequence[AnsweredPool], catalogue: Catalogue) -> Iterator[str]:
    """Yield the regions that have the GPUs of all these pools."""
    for name, region in catalogue.regions.items():
        if all(region.cap_gpus.get(pool.gpu, 0) > 0 for pool in pools):
            yield name


def engine_name(engine: AnsweredEngine, pool: AnsweredPool) -> str:
    """Return the name of an engine in plans and tables, like fp8-kv8-b256-t8192-k3 or sglang-bf16-b64-t2048.

    It has the backend other than vLLM, bits, requests in a batch, tokens of a step, and draft tokens.
    """
    parts = [engine.backend] if engine.backend != VLLM else []
    parts += [BIT_NAMES.get(engine.weight_bits, f"w{engine.weight_bits}")]
    parts += [f"kv{engine.kv_bits}"] if engine.kv_bits < FLOOR_BITS["bf16"] else []
    parts += ["ep"] if engine.is_expert_parallel else []
    parts += [f"pp{pool.pipeline_parallel}"] if pool.pipeline_parallel > 1 else []
    parts += [f"dp{pool.data_parallel_size}"] if pool.data_parallel_size > 1 else []
    drafts = len(engine.speculative_acceptance)
    limits = [f"b{engine.max_batch}", f"t{engine.token_budget}", *([f"k{drafts}"] if drafts else [])]
    return "-".join([*parts, *limits])


def engine_identity(fleet: FleetConfig, pool: Deployment) -> tuple[Any, ...]:
    """Return what two deployments of an llm have in common if they run the same engine."""
    degrees = (pool.gpu, pool.tensor_parallel, pool.pipeline_parallel)
    return *degrees, pool.role, pool.team, fleet.engine(pool), pool.llm_changes
