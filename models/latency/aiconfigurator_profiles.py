"""Latency profiles from aiconfigurator-core: kernels that NVIDIA measured, summed up for an llm.

The package answers single questions: the time of a prompt's pass, and of a decode step at one context. The
replay needs a profile (profile_tables.py). So the answers are reduced to it:

    prefill_s[n]   one prompt of n tokens, at the knots of the other profiles
    f[B] + g*B*x   decode steps of B requests with a context of x tokens: a line through x for each batch,
                   with one slope g for all, by least squares of relative errors
    h              extra time of a prompt's pass after a context, per token and context token, likewise

The package gets the llm's architecture as a config.json: its own copy, one in a folder, or, for a dense llm,
one written from llms.toml. It gets no name, because it would download the config of a name that it lacks.
Stages of a pipeline are added later (pipeline_stages.py).

Source: github.com/ai-dynamo/aiconfigurator, Apache-2.0.
"""

import json
from contextlib import suppress
from pathlib import Path

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.latency.aiconfigurator_package import (
    CORE_PACKAGE,
    EngineQuery,
    PackageLacksData,
    installed_package,
)
from fleetcast.models.latency.engine_correction import correct_profile
from fleetcast.models.latency.model_configs import check_model_config, read_model_config, written_config
from fleetcast.models.latency.profile_cache import answer_query
from fleetcast.models.latency.profile_tables import ProfileFit, check_latency_profile
from fleetcast.models.latency.roofline import FULL_BITS
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import LatencyProfile, Llm
from fleetcast.models.world.toml_dataclasses import ConfigError

ENGINE = "vllm"
QUANTISATION = {8: "fp8"}  # of a dense llm whose config.json is written from llms.toml


def aiconfigurator_profile(
    catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int, engine: str = ENGINE
) -> LatencyProfile:
    """Return the profile of a deployment from aiconfigurator-core, with its correction.

    PackageLacksData, which says why, where the package has no data or is not installed. ConfigError for a
    config.json that contradicts llms.toml.
    """
    query = build_engine_query(catalogue, llm, gpu, tensor_parallel, engine)
    profile = profile_of_query(query, llm, gpu, tensor_parallel)
    return correct_profile(catalogue, profile, between_of_query(query))


def between_of_query(query: EngineQuery) -> tuple[Floats, Floats]:
    """Return seconds between GPUs at prefill and decode knots of an answered query, shape (K,) each."""
    prefill_s, decode_s = answer_query(query)["between_s"]
    return np.array(prefill_s), np.array(decode_s)


def profile_of_query(query: EngineQuery, llm: str, gpu: str, tensor_parallel: int) -> LatencyProfile:
    """Return the profile that answers a query; errors as of aiconfigurator_profile."""
    answer = answer_query(query)
    if "refusal" in answer:
        raise PackageLacksData(f"{CORE_PACKAGE} has no data: {answer['refusal']}")
    tables = answer["tables"]
    prefill_tokens, prefill_s, decode_batch, decode_s = (tuple(knots) for knots in tables[:-1])
    fit = ProfileFit(prefill_tokens, prefill_s, decode_batch, decode_s, tables[-1])
    source = (
        f"{CORE_PACKAGE}: kernels of {query.engine} {answer['engine_version']} on {query.system}, "
        f"weights in {query.gemm_bits or quantisation_name(query.quantisation, query.config)}, "
        f"package {query.version} (Apache-2.0)"
    )
    profile = LatencyProfile(
        llm, gpu, tensor_parallel, *fit, None, source, answer["prefill_per_context_token_s"]
    )
    try:
        check_latency_profile(profile)
    except ValueError as error:
        raise ConfigError(f"{CORE_PACKAGE} gave no usable profile. {error}") from error
    return profile


def build_engine_query(
    catalogue: Catalogue, llm: str, gpu: str, tensor_parallel: int, engine: str
) -> EngineQuery:
    """Return the query of a deployment; ConfigError without a system or a config."""
    arch, system = catalogue.llms[llm], catalogue.gpus[gpu].system
    if system is None:
        raise PackageLacksData(f"{CORE_PACKAGE} has no data of {gpu}: gpus.toml gives it no system")
    version, shipped = installed_package()
    if arch.model is None:
        config, quantisation = written_config(arch, llm), ""
        bits = "" if arch.weight_bits == FULL_BITS else QUANTISATION.get(arch.weight_bits, "")
        if arch.weight_bits != FULL_BITS and not bits:
            raise PackageLacksData(
                f"{llm} has {arch.weight_bits} bits a weight, and llms.toml has no model of it"
            )
    else:
        config, quantisation = read_checked_config(arch, llm, shipped)
        bits = ""
    mixture = arch.experts is not None
    return EngineQuery(config, quantisation, bits, mixture, system, engine, tensor_parallel, version)


def check_llm_config(catalogue: Catalogue, llm: str) -> None:
    """Raise ConfigError for a config.json of an llm that cannot be read or contradicts llms.toml."""
    arch = catalogue.llms[llm]
    if arch.model is not None:
        with suppress(PackageLacksData):  # without the package its copies cannot be read
            read_checked_config(arch, llm, installed_package()[1])


def read_checked_config(arch: Llm, llm: str, shipped: Path) -> tuple[str, str]:
    """Return the texts of config.json and hf_quant_config.json of an llm; errors as of check_llm_config."""
    config, quantisation = read_model_config(arch.model or "", shipped, llm)
    check_model_config(json.loads(config), arch, llm)
    return config, quantisation


def quantisation_name(quantisation: str, config: str) -> str:
    """Return the quantisation that a config names, for people; bf16 if it names none."""
    named = json.loads(quantisation).get("quantization", {}) if quantisation else {}
    own = json.loads(config).get("quantization_config") or {}
    return str(named.get("quant_algo") or own.get("quant_method") or "bf16").lower()
