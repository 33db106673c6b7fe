"""Sizes of an llm from its config.json against published ones, and llms that are named by their model."""

import dataclasses
import json
import re
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fleetcast.assets.advice.advice_config import named_llm_tables
from fleetcast.assets.studies.configure_files import render_overrides
from fleetcast.assets.studies.rent_query import timed_gpus
from fleetcast.assets.studies.try_fleet import add_fleet_llms, parse_fleet
from fleetcast.assets.traces.trace_mapping import read_mapping
from fleetcast.models.configure.engine_points import EnginePoint, EngineSettings, EngineShape, EngineVariant
from fleetcast.models.latency.aiconfigurator_profiles import build_engine_query
from fleetcast.models.latency.profile_order import find_profile
from fleetcast.models.simulation import Fleet
from fleetcast.models.world.catalogue import CATALOGUE_DIR, load_catalogue
from fleetcast.models.world.catalogue_overrides import override_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.model_quantisation import Quantisation
from fleetcast.models.world.model_rows import build_llm, file_stem, sizes_of_model
from fleetcast.models.world.model_sizes import (
    UnknownArchitecture,
    find_contradiction,
    read_model_sizes,
)
from fleetcast.models.world.named_llms import add_named_llms
from fleetcast.models.world.shipped_models import read_model_config, same_models, shipped_models
from fleetcast.models.world.toml_dataclasses import ConfigError, ConfigWarning, read_toml
from fleetcast.pipelines.cli import cli_app

pytest.importorskip("aiconfigurator_core", reason="aiconfigurator-core has no wheel for this platform")

CATALOGUE = load_catalogue()
OFFICE = load_config("office", CATALOGUE)
LLAMA, H100 = "meta-llama/Llama-3.3-70B-Instruct", "h100-80gb"
PUBLISHED = {  # billions of parameters, and of those that a token uses, as model cards and reports say
    "meta-llama/Meta-Llama-3.1-8B": (8.03, None),
    "meta-llama/Meta-Llama-3.1-70B": (70.6, None),
    "meta-llama/Meta-Llama-3.1-405B": (405.9, None),
    "Qwen/Qwen3-0.6B": (0.6, None),
    "Qwen/Qwen3-1.7B": (1.7, None),
    "Qwen/Qwen3-8B": (8.2, None),
    "Qwen/Qwen3-32B": (32.8, None),
    "Qwen/Qwen3-30B-A3B": (30.5, 3.3),
    "Qwen/Qwen3-235B-A22B": (235.0, 22.0),
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": (480.0, 35.0),
    "mistralai/Mixtral-8x7B-v0.1": (46.7, 12.9),
    "mistralai/Mixtral-8x22B-v0.1": (141.0, 39.0),
    "openai/gpt-oss-20b": (20.9, 3.6),
    "openai/gpt-oss-120b": (116.8, 5.1),
    "deepseek-ai/DeepSeek-V3": (671.0, 37.0),
    "moonshotai/Kimi-K2-Instruct": (1040.0, 32.6),
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": (109.0, 17.0),
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": (400.0, 17.0),
    "MiniMaxAI/MiniMax-M2.5": (228.7, 10.2),
    "Qwen/Qwen3.5-27B": (27.4, None),
    "Qwen/Qwen3.5-35B-A3B": (35.0, 3.0),
    "Qwen/Qwen3.5-122B-A10B": (122.0, 10.0),
    "Qwen/Qwen3.5-397B-A17B": (397.0, 17.0),
    "deepseek-ai/DeepSeek-V3.2": (671.9, 37.9),
    "zai-org/GLM-5": (744.0, 40.0),
    "XiaomiMiMo/MiMo-V2-Flash": (309.0, 15.0),
    "google/gemma-4-26B-A4B": (25.2, 3.8),
    "nvidia/Gemma-4-31B-IT-NVFP4": (30.7, None),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.6, 3.6),
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8": (120.6, 12.7),
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": (550.0, 55.0),
    "nvidia/Nemotron-H-56B-Base-8K": (56.3, None),
}
CHECKPOINT_GIB = {"openai/gpt-oss-120b": 60.8, "openai/gpt-oss-20b": 12.8}  # gpt-oss model card, table 1
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDTH, WORDS = 4096, 32, 8, 128, 8192, 100_000
DENSE = {
    "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": 2, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "intermediate_size": WIDTH, "vocab_size": WORDS,
}  # fmt: skip
MIXTURE = DENSE | {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}
SHARED = {"model_type": "glm4_moe", "n_shared_experts": 1, "moe_intermediate_size": WIDTH // 4}
FP8 = {"quant_method": "fp8"}
LATENT = DENSE | {
    "model_type": "deepseek_v3", "kv_lora_rank": 512, "q_lora_rank": 768, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 96, "v_head_dim": 80,
}  # fmt: skip
LINEAR = {
    "model_type": "qwen3_5_text", "attn_output_gate": True, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_value_head_dim": 64,
    "linear_num_value_heads": 48, "mamba_ssm_dtype": "float32",
    "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
MAMBA = {
    "model_type": "nemotron_h", "mamba_num_heads": 64, "mamba_head_dim": 80, "n_groups": 8,
    "ssm_state_size": 128, "conv_kernel": 4, "hybrid_override_pattern": "M-*E", "n_routed_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 1000, "moe_shared_expert_intermediate_size": 3000,
    "moe_latent_size": 500,
}  # fmt: skip
GEMMA = {
    "model_type": "gemma4_text", "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 1000, "global_head_dim": 512, "num_global_key_value_heads": 2,
    "attention_k_eq_v": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 1000,
}  # fmt: skip
MIMO = {
    "model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1], "moe_layer_freq": [0, 1],
    "v_head_dim": 96, "swa_num_key_value_heads": 16, "swa_head_dim": 64, "swa_v_head_dim": 32,
    "sliding_window": 128, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 1000,
}  # fmt: skip
INDEX = {"model_type": "deepseek_v32", "index_n_heads": 64, "index_head_dim": 128}
TOWER = {"depth": 3, "hidden_size": 1000, "intermediate_size": 1500, "spatial_merge_size": 2}
IMAGES = {"text_config": DENSE, "vision_config": TOWER}


def sizes(config: dict[str, Any], quantisation: dict[str, Any] | None = None) -> dict[str, Any]:
    return read_model_sizes(config, quantisation or {}, "here")


def write_model(folder: Path, config: dict[str, Any]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


@pytest.mark.parametrize("model", PUBLISHED)
def test_parameters_are_those_that_model_cards_publish(model: str) -> None:
    found, (parameters_b, active_b) = sizes_of_model(model, "here", model), PUBLISHED[model]
    assert found["parameters_b"] == pytest.approx(parameters_b, rel=0.02), f"{model}: {found}"
    row = {"parameters_b": parameters_b, "active_parameters_b": active_b}
    assert find_contradiction(row, found) == "", f"{model}: {found}"
    assert ("experts" in found) == (active_b is not None), f"{model}: a mixture has experts, others have none"


def test_every_row_of_the_catalogue_agrees_with_the_config_of_its_model() -> None:
    """The rows were typed from model cards; each size, and the bits of a quantised checkpoint, are equal."""
    rows = {name: llm for name, llm in CATALOGUE.llms.items() if llm.model is not None}
    assert len(rows) >= 9
    for name, llm in rows.items():
        found = sizes_of_model(str(llm.model), name, name)
        assert find_contradiction(vars(llm), found) == "", name
        assert {key for key in found if getattr(llm, key) is None} == set(), f"{name} lacks keys"


@pytest.mark.parametrize("model", CHECKPOINT_GIB)
def test_the_bytes_of_a_checkpoint_are_the_published_ones(model: str) -> None:
    """gpt-oss: experts in 4 bits with scales, attention and tables in 16: 60.8 GiB instead of 54.4."""
    llm = build_llm({"model": model}, "here", model)
    assert llm.weight_bytes / 2**30 == pytest.approx(CHECKPOINT_GIB[model], rel=0.01), model


def test_parameters_by_hand() -> None:
    """Each term of the formula, in billions."""
    table, network = HIDDEN * WORDS, 3 * HIDDEN * WIDTH
    attention = HIDDEN * (HEADS + 2 * KV_HEADS) * HEAD_DIM + HEADS * HEAD_DIM * HIDDEN
    latent = HIDDEN * 768 + 768 * HEADS * 160 + HIDDEN * 576 + 512 * HEADS * 176 + HEADS * 80 * HIDDEN
    no_rank = latent + HIDDEN * HEADS * 160 - HIDDEN * 768 - 768 * HEADS * 160
    images = 3 * (4 * 1000**2 + 2 * 1000 * 1500) + 4000 * (4000 + HIDDEN)
    cases: list[tuple[str, dict[str, Any], int]] = [
        ("dense", DENSE, 2 * (attention + network) + 2 * table),
        ("one table", DENSE | {"tie_word_embeddings": True}, 2 * (attention + network) + table),
        ("wide heads", DENSE | {"head_dim": 256}, 2 * (2 * attention + network) + 2 * table),
        ("experts", MIXTURE, 2 * (attention + 8 * network) + 2 * table),
        ("a dense layer", MIXTURE | {"mlp_only_layers": [0]}, 2 * attention + 9 * network + 2 * table),
        ("every second", MIXTURE | {"decoder_sparse_step": 2}, 2 * attention + 9 * network + 2 * table),
        ("shared", MIXTURE | SHARED, 2 * attention + 2 * 9 * network // 4 + 2 * table),
        ("latent", LATENT, 2 * (latent + network) + 2 * table),
        ("latent, no rank", LATENT | {"q_lora_rank": None}, 2 * (no_rank + network) + 2 * table),
        ("images", IMAGES, 2 * (attention + network) + 2 * table + images),
    ]  # fmt: skip
    for name, config, expected in cases:
        assert sizes(config)["parameters_b"] == pytest.approx(expected / 1e9, abs=2e-4), name
    mixture, idle_b = sizes(MIXTURE), 2 * 6 * network / 1e9
    assert mixture["parameters_b"] - mixture["active_parameters_b"] == pytest.approx(idle_b, abs=2e-4)
    assert (sizes(LATENT)["kv_heads"], sizes(LATENT)["head_dim"]) == (1, 288)  # 512 + 64 numbers of a token


def test_layers_of_several_kinds_by_hand() -> None:
    """Parameters, and what the layers that do not keep all tokens keep of a request, in MB."""
    table, network, expert = HIDDEN * WORDS, 3 * HIDDEN * WIDTH, 3 * HIDDEN * 1000
    gated = HIDDEN * (2 * HEADS + 2 * KV_HEADS) * HEAD_DIM + HEADS * HEAD_DIM * HIDDEN
    attention = gated - HIDDEN * HEADS * HEAD_DIM
    keys, values = 16 * 128, 48 * 64
    linear = HIDDEN * (2 * keys + 2 * values + 2 * 48) + values * HIDDEN
    inner, mixed = 64 * 80, 64 * 80 + 2 * 8 * 128
    mamba = HIDDEN * (inner + mixed + 64) + inner * HIDDEN
    latent_experts = 8 * 2 * 500 * 1000 + 2 * HIDDEN * 3000 + 2 * HIDDEN * 500
    wide = HIDDEN * (HEADS + 2) * 512 + HEADS * 512 * HIDDEN  # its values are its keys
    narrow = HIDDEN * ((HEADS + 16) * 64 + 16 * 32) + HEADS * 32 * HIDDEN
    uneven = HIDDEN * ((HEADS + KV_HEADS) * HEAD_DIM + KV_HEADS * 96) + HEADS * 96 * HIDDEN
    latent = HIDDEN * 768 + 768 * HEADS * 160 + HIDDEN * 576 + 512 * HEADS * 176 + HEADS * 80 * HIDDEN
    index = 768 * 64 * 128 + HIDDEN * 128 + HIDDEN * 64
    cases: list[tuple[dict[str, Any], int, tuple[int, int, int], float]] = [
        (LINEAR, gated + linear + 2 * (network + table), (1, KV_HEADS, HEAD_DIM),
         1.5 * ((2 * keys + values) * 3 * 2 + values * 128 * 4)),
        (MAMBA, mamba + attention + 2 * HIDDEN * WIDTH + latent_experts + 2 * table, (1, KV_HEADS, HEAD_DIM),
         1.5 * (mixed * 3 * 2 + inner * 128 * 2)),
        (GEMMA, attention + wide + 2 * (network + 8 * expert) + table, (1, 2, 512),
         2 * KV_HEADS * HEAD_DIM * 1024 * 2),
        (MIMO, uneven + narrow + network + 8 * expert + 2 * table, (1, KV_HEADS, 112),
         16 * (64 + 32) * 144 * 2),
        (LATENT | INDEX, 2 * (latent + index + network) + 2 * table, (2, 1, 321), 0.0),
    ]  # fmt: skip
    for config, parameters, cache, kept_bytes in cases:
        found = sizes(DENSE | config)
        assert found["parameters_b"] == pytest.approx(parameters / 1e9, abs=2e-4), config["model_type"]
        layers = found.get("cache_layers", found["layers"])
        assert (layers, found["kv_heads"], found["head_dim"]) == cache, config["model_type"]
        assert found.get("request_cache_mb", 0.0) == pytest.approx(kept_bytes / 1e6, abs=1e-3)
    by_interval = {"layer_types": None, "full_attention_interval": 2}
    assert sizes(DENSE | LINEAR | by_interval) == sizes(DENSE | LINEAR)
    gemma_3 = DENSE | {"model_type": "gemma3_text", "num_hidden_layers": 12, "sliding_window": 1024}
    assert sizes(gemma_3)["cache_layers"] == 2
    listed = {"hybrid_override_pattern": None, "layers_block_type": ["mamba", "mlp", "attention", "moe"]}
    assert sizes(DENSE | MAMBA | listed) == sizes(DENSE | MAMBA)


def test_a_state_is_as_large_as_a_block_of_the_cache_of_vllm() -> None:
    """vLLM makes the blocks of Qwen3.5-397B-A17B as large as a state: 2,096 tokens, a multiple of 16.

    Source: vLLM, pull request 35703. The 45 linear layers keep a state, the 15 others lose half of one.
    """
    llm = build_llm({"model": "Qwen/Qwen3.5-397B-A17B"}, "here", "here")
    layer_bytes = llm.kv_bytes_per_token / llm.attention_layers  # of a token
    state_tokens = llm.request_cache_mb * 1e6 / (45 + 15 / 2) / layer_bytes
    assert -(-state_tokens // 16) * 16 == 2096


def test_a_cache_of_8_bits_halves_windows_and_not_states() -> None:
    half = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    for config, factor in ((GEMMA, 0.5), (LINEAR, 1.0)):
        whole, eighth = (sizes(DENSE | config, each)["request_cache_mb"] for each in ({}, half))
        assert eighth == pytest.approx(factor * whole, rel=1e-3), config["model_type"]


def test_the_cache_of_latent_attention_is_576_numbers_a_token() -> None:
    for model in ("deepseek-ai/DeepSeek-V3", "moonshotai/Kimi-K2.5"):
        llm = build_llm({"model": model}, "here", model)
        assert llm.kv_bytes_per_token == 61 * 576 * 2, model


def test_quantised_checkpoints_keep_the_modules_that_they_name() -> None:
    names = {
        "glob": (["model.layers.*.self_attn"], "layers.7.self_attn.o_proj"),
        "a star at the end": (["language_model.model.layers.7.self_attn*"], "layers.7.self_attn.o_proj"),
        "a whole path": (["model.layers.7.self_attn.o_proj"], "layers.7.self_attn.o_proj"),
        "a part": (["gate"], "layers.7.mlp.gate"),
        "an expression": (["re:.*mlp\\.(gate|up)_proj.*"], "layers.7.mlp.gate_proj"),
    }
    for form, (ignore, module) in names.items():
        kind = Quantisation.read({"quantization_config": FP8 | {"ignore": ignore}}, {}, "here")
        assert kind is not None
        assert not kind.covers(module), form
        assert kind.covers("layers.8.mlp.experts.0.down_proj"), form
        assert kind.covers("layers.77.self_attn.o_proj") or form == "glob", form
    hostile = FP8 | {"ignore": ["re:(a+)+$", "re:(", 7, None]}
    assert Quantisation.read({"quantization_config": hostile}, {}, "here") is not None


@pytest.mark.parametrize(
    ("table", "bits", "cache_bits", "scale_bits"),
    [
        ({"quantization_config": FP8}, 8, 16, 0.0),
        ({"quantization_config": {"quant_method": "mxfp4"}}, 4, 16, 0.25),
        ({"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}, 4, 8, 0.5),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
                    "kv_cache_scheme": {"num_bits": 8},
                }
            },
            *(4, 8, 0.5),
        ),
    ],
)
def test_bits_are_read_in_every_form(
    table: dict[str, Any], bits: int, cache_bits: int, scale_bits: float
) -> None:
    kind = Quantisation.read(table, table, "here")
    assert kind is not None
    assert (kind.bits, kind.cache_bits, kind.scale_bits) == (bits, cache_bits, scale_bits)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "foo"}, "of the architecture foo, and its layers are not known here"),
        ({"model_type": None}, "without a model_type"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "it has layers of linear_attention"),
        (LINEAR | {"layer_types": ["full_attention"]}, "lists 1 layers, but num_hidden_layers is 2"),
        (LINEAR | {"layer_types": ["full_attention", "moon"]}, "has a layer 'moon', known are"),
        (LINEAR | {"layer_types": ["full_attention", ["x"]]}, "has a layer ['x'], known are"),
        (LINEAR | {"layer_types": None}, "its config.json has no full_attention_interval"),
        ({"model_type": "nemotron_h"}, "its config.json has no hybrid_override_pattern. Add it there"),
        (MAMBA | {"hybrid_override_pattern": "M" * 9999}, "has 9,999 layers, needed 1 to 1,000"),
        (GEMMA | {"num_kv_shared_layers": 1}, "some of its layers share a cache"),
        ({"num_hidden_layers": "36"}, "num_hidden_layers in its config.json is '36', needed a whole number"),
        ({"num_hidden_layers": 10**9}, "needed a whole number up to 1,000"),
        ({"num_attention_heads": -4}, "num_attention_heads in its config.json is -4"),
        ({"hidden_size": True}, "hidden_size in its config.json is True"),
        ({"vocab_size": None}, "its config.json has no vocab_size. Add it there"),
        (
            {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 5},
            "has 5 experts per token of 4",
        ),
        (
            {"quantization_config": {"quant_method": "odd"}},
            "the quantisation in its config.json is not known",
        ),
        ({"vision_config": {"depth": 3}}, "its vision_config: its config.json has no hidden_size"),
    ],
)
def test_what_is_not_understood_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        sizes(DENSE | changes)
    assert "\n" not in str(refused.value)


def test_every_shipped_model_is_read_or_refused_in_one_line() -> None:
    """Those that are refused compress their cache, or have no one number of bits."""
    refused = {}
    for model in shipped_models():
        try:
            llm = build_llm({"model": model}, model, model)
        except ConfigError as error:
            refused[model] = str(error)
            continue
        assert llm.parameters_b > 0.3, model
        assert llm.kv_bytes_per_token > 1000, model
    assert all("\n" not in line and len(line) < 400 for line in refused.values())
    families = re.compile(
        r"Qwen3.6.*NVFP4|DeepSeek-V4|Kimi-K3|Llama-3_3-Nemotron|Nemotron-3.5|MiniMax-M3|Step-3"
    )
    assert sorted(refused) == sorted(name for name in shipped_models() if families.search(name))


def test_each_name_of_the_same_model_has_a_shipped_one() -> None:
    shipped = set(shipped_models())
    same = read_toml(CATALOGUE_DIR / "same_models.toml")["same"]
    assert set(same) <= shipped, f"not shipped: {set(same) - shipped}"
    assert len(same_models()) == sum(map(len, same.values())), "a name is there twice"
    own = {name for name in same_models() if "meta-llama/Meta" not in same_models()[name]}
    assert not own & set(same), "a name that is shipped needs no other"
    assert read_model_config(LLAMA, "") == read_model_config("meta-llama/Meta-Llama-3.1-70B", "")


def test_a_row_needs_its_model_only(tmp_path: Path) -> None:
    """In llms.toml and in [catalogue.llms] of a config; keys that are given count."""
    data = tmp_path / "catalogue"
    shutil.copytree(CATALOGUE_DIR, data)
    with (data / "llms.toml").open("a") as file:
        file.write(f'\n[mine]\nmodel = "{LLAMA}"\nweight_bits = 8\n')
    mine = load_catalogue(data).llms["mine"]
    assert (mine.layers, mine.heads, mine.kv_heads, mine.head_dim) == (80, 64, 8, 128)
    assert mine.widths("mine") == (8192, 28672, 128256)
    assert (mine.weight_bits, mine.model, mine.extra_weight_gb) == (8, LLAMA, 0.0)
    assert mine.source == f"config.json of {LLAMA}, that of meta-llama/Meta-Llama-3.1-70B"
    changes = {"llms": {"mine": {"model": LLAMA, "weight_bits": 8}}}
    assert override_catalogue(CATALOGUE, changes, "run.toml").llms["mine"] == mine


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"layers": 63}, "layers is 63, but that of the config.json of its model is 80. Correct one of them"),
        ({"parameters_b": 65.0}, "parameters_b is 65, but that of the config.json of its model is 70.5524"),
        ({"vocabulary": 32000}, "vocabulary is 32000"),
        ({"layers": "80"}, "layers: got '80', needed int"),
        ({"layer": 80}, "unknown key 'layer'"),
        ({"model": "meta-llama/Llama-3.3-7B-Instruct"}, "Did you mean 'meta-llama/Llama-3.3-70B-Instruct'?"),
        ({"model": "moonshotai/Kimi-K3"}, "some of its layers keep a state"),
        ({"model": "openai/gpt-oss-20b", "weight_bits": 16}, "weight_bits is 16"),
    ],
)
def test_a_row_that_contradicts_its_model_is_refused(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        build_llm({"model": LLAMA} | row, "llms.toml [mine]", "mine")
    assert "\n" not in str(refused.value)


def test_a_complete_row_that_contradicts_its_model_has_no_profile() -> None:
    """Its config.json is read when it is priced, so that reading the catalogue takes no longer."""
    lying = dataclasses.replace(CATALOGUE.llms["qwen3-32b"], parameters_b=30.0)
    world = dataclasses.replace(CATALOGUE, llms={**CATALOGUE.llms, "qwen3-32b": lying})
    with pytest.raises(ConfigError, match=r"\[qwen3-32b\]: parameters_b is 30, but that of .* is 32\.7614"):
        find_profile(world, "qwen3-32b", H100, 2)
    near = dataclasses.replace(lying, parameters_b=32.5)
    world = dataclasses.replace(CATALOGUE, llms={**CATALOGUE.llms, "qwen3-32b": near})
    assert find_profile(world, "qwen3-32b", H100, 2).llm == "qwen3-32b"


def test_a_model_is_a_name_wherever_an_llm_is_named(tmp_path: Path) -> None:
    """In --fleet, as an option, in [fleet.deployments] and in a mapping: with the same sizes and profile."""
    folder = write_model(tmp_path / "own", json.loads(read_model_config("Qwen/Qwen3-8B", "")[0]))
    text = f"2 x {LLAMA}@4x{H100} + 1 x {folder}@{H100}"
    world = add_fleet_llms(CATALOGUE, [text], ["openai/gpt-oss-20b"], "--assume-llm")
    assert [pool.llm for pool in parse_fleet(text, world, OFFICE)] == [LLAMA, folder]
    assert list(world.llms)[: len(CATALOGUE.llms)] == list(CATALOGUE.llms), "codes of the catalogue changed"
    assert world.llms["openai/gpt-oss-20b"].experts == 32
    one, other = find_profile(world, LLAMA, H100, 4), find_profile(CATALOGUE, "llama3.1-70b", H100, 4)
    assert one == dataclasses.replace(other, llm=LLAMA)
    config = tmp_path / "run.toml"
    config.write_text(
        'based_on = "office"\n[trace]\nname = "t"\nfirst_day = 2025-07-01\ndays = 3\nseed = 1\n'
        f'[fleet.deployments]\n"{LLAMA}" = {{ gpu = "{H100}", tensor_parallel = 4 }}\n'
        f'"{folder}" = {{ gpu = "{H100}", tensor_parallel = 1 }}\n'
    )
    loaded = load_config(str(config), CATALOGUE)
    known = override_catalogue(CATALOGUE, loaded.catalogue, config.name).llms
    assert (known[LLAMA], known[folder]) == (world.llms[LLAMA], world.llms[folder])
    (tmp_path / "trace.toml").write_text(f'llm_names = {{ "team" = "{LLAMA}" }}\nllm = "{folder}"\n')
    mapping = read_mapping(tmp_path / "trace.csv", "t", CATALOGUE)
    assert mapping.shares["llm"] == {folder: 1.0}
    names = mapping.llm_names
    assert (names["team"], names[LLAMA], names["Qwen/Qwen3-8B"]) == (LLAMA, "llama3.1-70b", "qwen3-8b")


@pytest.mark.parametrize(
    "command",
    [
        ["try", "NAME", "--concurrency", "4", "--input", "64", "--output", "8"],
        ["try", "trace.csv", "--fleet", f"1 x NAME@{H100}"],
        ["try", "trace.csv", "--fleet", "NAME@config"],
        ["configure", "NAME", "--trace", "trace.csv"],
        ["advise", "trace.csv", "--assume-llm", "NAME"],
        ["advise", "trace.csv", "--fleet", f"1 x NAME@{H100}"],
        ["calibrate", "--llm", "NAME", "--gpu", H100, "--tensor-parallel", "4"],
    ],
    ids=lambda command: " ".join(command[:4:3]),
)
def test_every_command_names_the_nearest_model(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.csv").write_text("arrival_s,input_tokens,output_tokens\n0,64,8\n1,64,8\n")
    words = [word.replace("NAME", LLAMA.replace("Instruct", "Instuct")) for word in command]
    result = CliRunner().invoke(cli_app, words, env={"COLUMNS": "300"})
    assert result.exit_code == 2, result.output
    assert result.stderr.rstrip().endswith(f"Did you mean '{LLAMA}'?"), result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr


def test_a_load_and_a_profile_of_a_model_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profile that `calibrate` prints is that of the same llm in the catalogue."""
    monkeypatch.chdir(tmp_path)
    shape = ["--gpu", H100, "--tensor-parallel", "4"]
    named, known = (
        CliRunner().invoke(cli_app, ["calibrate", "--llm", llm, *shape]) for llm in (LLAMA, "llama3.1-70b")
    )
    assert (named.exit_code, known.exit_code) == (0, 0), named.output
    assert named.stdout.replace(LLAMA, "llama3.1-70b") == known.stdout
    load = ["--concurrency", "2", "--input", "64", "--output", "8", "--requests", "8", "--quiet"]
    sent = CliRunner().invoke(cli_app, ["try", LLAMA, *load], env={"COLUMNS": "300"})
    assert sent.exit_code == 0, sent.output
    assert f"1 x {LLAMA}@" in sent.stdout
    write_model(tmp_path / "own", DENSE)
    own = CliRunner().invoke(cli_app, ["try", "./own", *load, "--fleet", f"1 x ./own@{H100}"])
    assert own.exit_code == 0, own.output
    for name in (LLAMA, "./own", "llama3.1-8b"):
        alone = CliRunner().invoke(cli_app, ["try", name], env={"COLUMNS": "300"})
        assert "is an llm, not a trace file. Add --concurrency or --rate" in alone.stderr, name


def test_a_folder_is_the_same_from_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "own", DENSE)
    monkeypatch.chdir(tmp_path)
    assert add_named_llms(CATALOGUE, ["./own"], "here").llms["./own"].model == str(tmp_path / "own")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("meta-llama/Llama-3.3-70B-Instuct", f"Did you mean '{LLAMA}'?"),
        ("llama-3.3-70b-instruct", f"Did you mean '{LLAMA}'?"),
        ("llama3.1-9b", "Did you mean 'llama3.1-8b'?"),
        ("zzz", "none of a name like this"),
        ("./zzz", "'./zzz' is no folder with a config.json"),
        ("empty", "'empty' is no folder with a config.json"),
        ("has space", "has a space or one of"),
        ("", "unknown llm ''"),
        ("a" * 300, "unknown llm"),
        ("../etc/passwd", "is no folder with a config.json"),
        ("\0", "unknown llm"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    write_model(tmp_path / "has space", DENSE)
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        add_named_llms(CATALOGUE, [name], "--fleet")
    assert "\n" not in str(refused.value)


def test_written_configs_name_the_model_of_an_llm(tmp_path: Path) -> None:
    """configure and advise write a config that is read without the command line."""
    folder = write_model(tmp_path / "own", DENSE)
    world = add_named_llms(CATALOGUE, [LLAMA, folder], "here")
    tables = named_llm_tables([LLAMA, "llama3.1-8b", folder], world)
    assert tables == [
        f'[catalogue.llms."{LLAMA}"]\nmodel = "{LLAMA}"',
        f'[catalogue.llms."{folder}"]\nmodel = "{folder}"',
    ]
    shape = EngineShape(H100, 1, 1)
    point = EnginePoint(EngineVariant(8, 16, False), shape, EngineSettings(8, 512, "none", "round_robin"))
    lines = render_overrides(LLAMA, world, point)
    assert f'model = "{LLAMA}"' in lines
    assert not [line for line in render_overrides("llama3.1-8b", world, point) if line.startswith("model")]
    assert (file_stem(LLAMA), file_stem(folder)) == (LLAMA.replace("/", "--"), folder[1:].replace("/", "--"))


def test_a_16_bit_cache_of_a_checkpoint_with_8_bits_is_timed() -> None:
    """Else the package would time the cache of the config under both."""
    name = "nvidia/Llama-3.3-70B-Instruct-FP8"
    world = add_named_llms(CATALOGUE, [name], "here")
    assert (world.llms[name].weight_bits, world.llms[name].kv_bits) == (8, 8)
    assert build_engine_query(world, name, H100, 4).cache_bits == "fp8"
    full = dataclasses.replace(world.llms[name], kv_bits=16)
    world = dataclasses.replace(world, llms={name: full})
    assert build_engine_query(world, name, H100, 4).cache_bits == "bfloat16"
    assert build_engine_query(CATALOGUE, "llama3.1-70b", H100, 4).cache_bits == ""


def test_without_the_package_a_name_is_refused_and_the_catalogue_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    with pytest.raises(ConfigError, match="unknown llm"):
        add_named_llms(CATALOGUE, [LLAMA], "--fleet")
    with pytest.raises(ConfigError, match="aiconfigurator-core, which ships some, is not installed"):
        build_llm({"model": LLAMA}, "here", "mine")
    folder = write_model(tmp_path / "own", DENSE)
    assert add_named_llms(load_catalogue(), [folder], "--fleet").llms[folder].layers == 2


def test_an_architecture_that_is_not_known_is_its_own_error() -> None:
    with pytest.raises(UnknownArchitecture):
        sizes(DENSE | {"model_type": "step3p7"})


def test_a_gpu_type_without_a_price_costs_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`try` shows a dash for USD; with --prices `configure` considers the type."""
    gpu = "gb300-279gb"
    assert CATALOGUE.gpus[gpu].usd_per_hour == 0.0
    assert gpu not in timed_gpus(CATALOGUE), "a type without a price is considered by default"
    assert np.isnan(Fleet(llm=LLAMA, gpu=gpu, tensor_parallel=1, instances=1).usd_per_hour())
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{n},64,8\n" for n in range(240))
    (tmp_path / "own.csv").write_text(f"arrival_s,input_tokens,output_tokens\n{rows}")
    fleet = f"1 x llama3.1-8b@{gpu}"
    result = CliRunner().invoke(cli_app, ["try", "own.csv", "--fleet", fleet, "-q"], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.output
    [row] = [line for line in result.stdout.splitlines() if line.startswith(fleet)]
    assert row.split()[-3:] == ["–", "0", "0"], row
    configure = ["configure", "llama3.1-8b", "--trace", "own.csv", "--gpus", gpu, "-q"]
    refused = CliRunner().invoke(cli_app, configure, env={"COLUMNS": "300"})
    assert f"{gpu} has no price above 0" in refused.stderr
    (tmp_path / "prices.toml").write_text(f"{gpu} = 20.0\n")
    found = CliRunner().invoke(
        cli_app, [*configure, "--prices", "prices.toml", "--out", str(tmp_path / "out")]
    )
    assert found.exit_code == 0, found.output
    assert "usd_per_hour = 20.0" in (tmp_path / "out" / "fleet.toml").read_text()


def test_a_config_that_deploys_a_type_without_a_price_says_so(tmp_path: Path) -> None:
    text = (
        'based_on = "office"\n[trace]\nname = "t"\nfirst_day = 2025-07-01\ndays = 3\nseed = 1\n'
        '[fleet.deployments]\n"llama3.1-8b" = { gpu = "b300-270gb", tensor_parallel = 1 }\n'
    )
    config = tmp_path / "run.toml"
    config.write_text(text)
    with pytest.warns(ConfigWarning, match=r"run\.toml: b300-270gb has no price, so that it costs 0 USD"):
        load_config(str(config), CATALOGUE)
    config.write_text(f"{text}[catalogue.gpus.b300-270gb]\nusd_per_hour = 0.0\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConfigWarning)
        load_config(str(config), CATALOGUE)
