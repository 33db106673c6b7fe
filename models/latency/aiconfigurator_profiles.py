"""Latency profiles from aiconfigurator-core: kernels that NVIDIA measured, summed up for an llm.

The package answers single questions: the time of a prompt's pass, and of a decode step at one context. The
replay needs a profile (profile_tables.py). So the answers are reduced to it:

    prefill_s[n]   one prompt of n tokens, at the knots of the other profiles
    f[B] + g*B*x   decode steps of B requests with a context of x tokens: a line through x for each batch,
                   with one slope g for all, by least squares of relative errors
    h              extra time of a prompt's pass after a context, per token and context token, likewise
    expert_s[n]    of prefill_s[n], the seconds in experts that data-parallel ranks share, and of sending
                   tokens there, where each rank has n tokens

The package gets the llm's architecture as a config.json: its own copy, one in a folder, or, for a dense llm,
one written from llms.toml. It gets no name, because it would download the config of a name that it lacks.
Stages of a pipeline are added later (pipeline_stages.py).

Source: github.com/ai-dynamo/aiconfigurator, Apache-2.0.
"""

import json

from fleetcast.models.latency.aiconfigurator_package import (
    CORE_PACKAGE,
    EngineQuery,
    PackageLacksData,
    installed_version,
)
from fleetcast.models.latency.engine_correction import correct_profile
from fleetcast.models.latency.model_configs import written_config
from fleetcast.models.latency.profile_cache import answer_query
from fleetcast.models.latency.profile_tables import check_latency_profile
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile, Llm
from fleetcast.models.world.model_quantisation import FULL_BITS, list_tables, read_cache_bits
from fleetcast.models.world.shipped_models import read_model_config
from fleetcast.models.world.toml_dataclasses import ConfigError

# Names of bits in the package, for weights that the config.json does not quantise itself, and for the cache.
WEIGHT_BITS = {FULL_BITS: "", 8: "fp8", 4: "nvfp4"}
CACHE_BITS = {FULL_BITS: "", 8: "fp8"}
FULL_CACHE = "bfloat16"
UNQUANTISED = "bf16"


def aiconfigurator_profile(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """Return the profile of a deployment from aiconfigurator-core, with its correction.

    PackageLacksData, which says why, where the package has no data or is not installed. ConfigError for a
    config.json that cannot be read.
    """
    query = build_engine_query(catalogue, llm, gpu, tensor_parallel)
    profile = profile_of_query(query, llm, gpu, tensor_parallel)
    return correct_profile(catalogue, profile, answer_query(query)["between_s"])


def profile_of_query(query: EngineQuery, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """Return the profile that answers a query; errors as of aiconfigurator_profile."""
    answer = answer_query(query)
    if "refusal" in answer:
        raise PackageLacksData(f"{CORE_PACKAGE} has no data: {answer['refusal']}")
    *knots, kv_token_s = answer["tables"]
    prefill_tokens, prefill_s, decode_batch, decode_s = map(tuple, knots)
    source = (
        f"{CORE_PACKAGE}: kernels of {query.engine} {answer['engine_version']} on {query.system}, "
        f"weights in {query.gemm_bits or quantisation_name(query.quantisation, query.config)}, "
        f"package {query.version} (Apache-2.0)"
    )
    profile = LatencyProfile(
        llm, gpu, tensor_parallel, prefill_tokens, prefill_s, decode_batch, decode_s, kv_token_s,
        source=source, prefill_per_context_token_s=answer["prefill_per_context_token_s"],
        expert_s=tuple(answer["expert_s"]),
    )  # fmt: skip
    try:
        check_latency_profile(profile)
    except ValueError as error:
        raise ConfigError(f"{CORE_PACKAGE} gave no usable profile. {error}") from error
    return profile


def build_engine_query(catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int) -> EngineQuery:
    """Return the query of a deployment; ConfigError without a system or a config."""
    arch, system = catalogue.llms[llm], catalogue.gpus[gpu].system
    if system is None:
        raise PackageLacksData(f"{CORE_PACKAGE} has no data of {gpu}: gpus.toml gives it no system")
    version = installed_version()
    if arch.model is None:
        config, quantisation = written_config(arch, llm), ""
    else:
        config, quantisation = read_model_config(arch.model, llm)
    bits, cache_bits = WEIGHT_BITS.get(arch.weight_bits), CACHE_BITS.get(arch.kv_bits)
    tables = list_tables(json.loads(config), json.loads(quantisation) if quantisation else {})
    if read_cache_bits(tables) < arch.kv_bits:
        cache_bits = FULL_CACHE  # else the package takes that of the config
    if quantisation_name(quantisation, config) != UNQUANTISED:
        bits = ""
    if bits is None or cache_bits is None:
        raise PackageLacksData(
            f"{llm} has {arch.weight_bits} bits a weight, {arch.kv_bits} in its cache; it times weights of "
            f"{', '.join(map(str, WEIGHT_BITS))} bits, caches of {', '.join(map(str, CACHE_BITS))}"
        )
    is_mixture = arch.experts is not None
    return EngineQuery(
        config, quantisation, bits, is_mixture, system, arch.backend, tensor_parallel, version,
        expert_bits=bits if is_mixture else "",
        expert_parallel=tensor_parallel * arch.expert_ranks if arch.is_expert_parallel else 1,
        cache_bits=cache_bits,
        ranks=arch.expert_ranks,
    )  # fmt: skip


def weight_bit_choices(arch: Llm, llm: str) -> list[int]:
    """Return the bits of a weight at which the llm can be served: its own and, if not fixed, fewer.

    The config.json of some llms fixes them. ConfigError for a config.json that cannot be read.
    """
    if arch.model is not None:
        config, quantisation = read_model_config(arch.model, llm)
        if quantisation_name(quantisation, config) != UNQUANTISED:
            return [arch.weight_bits]
    return [bits for bits in WEIGHT_BITS if bits <= arch.weight_bits] or [arch.weight_bits]


def quantisation_name(quantisation: str, config: str) -> str:
    """Return the quantisation that a config names, for people; bf16 if it names none."""
    named = json.loads(quantisation).get("quantization", {}) if quantisation else {}
    own = json.loads(config).get("quantization_config") or {}
    return str(named.get("quant_algo") or own.get("quant_method") or UNQUANTISED).lower()
