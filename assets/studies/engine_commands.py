"""The commands that run an instance of a chosen engine point: vLLM, SGLang, TensorRT-LLM, Dynamo."""

import dataclasses
import json
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from fleetcast.models.configure.engine_points import EngineMarket, EnginePoint, EngineShape
from fleetcast.models.configure.fleet_trials import FleetScore
from fleetcast.models.world.catalogue_entries import VLLM, Llm
from fleetcast.models.world.model_rows import file_stem

WEIGHT_NAMES, CACHE_NAMES = {16: "bf16", 8: "fp8", 4: "fp4"}, {16: "bf16", 8: "fp8"}
ENGINE_PORT = 8000
DRAFTER = "/path/to/drafter"
BACKEND_TITLES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
TRANSFER = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'
# Labels that NVIDIA's GPU feature discovery gives nodes, by the system of a GPU type.
PRODUCTS = {
    "h100_sxm": "NVIDIA-H100-80GB-HBM3",
    "h200_sxm": "NVIDIA-H200",
    "b200_sxm": "NVIDIA-B200",
    "a100_sxm": "NVIDIA-A100-SXM4-80GB",
    "l40s": "NVIDIA-L40S",
    "rtx_pro_6000_server": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
}


class EngineCommand(NamedTuple):
    """The command of one instance of a role."""

    role: str
    instances: int
    shape: EngineShape
    product: str  # label of its nodes; the name of the GPU type where none is known
    backend: str  # whose seconds the cost has
    by_backend: Mapping[str, list[str]]
    dynamo: list[str]  # arguments of Dynamo's component of this backend

    @property
    def words(self) -> list[str]:
        """The command of the backend whose seconds the cost has."""
        return self.by_backend[self.backend]

    @property
    def server(self) -> list[str]:
        """The same, for requests from other machines."""
        return [*self.words, *flags(host="0.0.0.0", port=ENGINE_PORT)]


def describe_point(point: EnginePoint) -> str:
    """Return a point on one line, like 2xh100-80gb, fp8 weights, bf16 cache, 3 draft tokens."""
    shapes = " > ".join(describe_shape(shape) for shape in point.shapes)
    experts = ", whole experts" if point.variant.is_expert_parallel else ""
    weights, cache = WEIGHT_NAMES[point.variant.weight_bits], CACHE_NAMES[point.variant.kv_bits]
    drafts = len(point.settings.speculative_acceptance)
    speculation = f", {drafts} draft token{'s' * (drafts > 1)}" if drafts else ""
    backend = "" if point.variant.backend == VLLM else f", {BACKEND_TITLES[point.variant.backend]}"
    return f"{shapes}, {weights} weights, {cache} cache{experts}{speculation}{backend}"


def describe_shape(shape: EngineShape) -> str:
    """Return the GPUs of an instance, like 4xh100-80gb, 2x2xh100-80gb with two stages, or 8 ranks of 1xl4."""
    ranks = f"{shape.data_parallel_size} ranks of " if shape.data_parallel_size > 1 else ""
    stages = f"{shape.pipeline_parallel}x" if shape.pipeline_parallel > 1 else ""
    return f"{ranks}{stages}{shape.tensor_parallel}x{shape.gpu}"


def engine_commands(llm: str, arch: Llm, market: EngineMarket, score: FleetScore) -> list[EngineCommand]:
    """Return the command of each role, for every backend; `arch` is the llm without the variant."""
    point, backend = score.point, score.point.variant.backend
    roles = ("whole",) if point.decode is None else ("prefill", "decode")
    gpus = next(iter(market.catalogues.values())).gpus
    return [
        EngineCommand(
            role, count, shape, PRODUCTS.get(gpus[shape.gpu].system or "", shape.gpu), backend,
            {
                name: command(llm, arch, market, point, shape, role)
                for name, command in (
                    ("vllm", vllm_command), ("sglang", sglang_command), ("trtllm", trtllm_command)
                )
            },
            dynamo_arguments(llm, arch, market, point, shape, role),
        )
        for role, shape, count in zip(roles, point.shapes, score.counts, strict=True)
    ]  # fmt: skip


def vllm_command(
    llm: str, arch: Llm, market: EngineMarket, point: EnginePoint, shape: EngineShape, role: str
) -> list[str]:
    """Return the arguments of `vllm serve`."""
    settings, variant, fleet = point.settings, point.variant, market.config.fleet
    cache = "--enable-prefix-caching" if settings.prefix != "none" else "--no-enable-prefix-caching"
    words = ["vllm", "serve", model_name(llm, arch, point, "vllm"), *flags(
        tensor_parallel_size=shape.tensor_parallel,
        pipeline_parallel_size=shape.pipeline_parallel,
        max_num_seqs=settings.max_batch,
        max_num_batched_tokens=settings.token_budget,
        gpu_memory_utilization=fleet.kv_memory_share,
        block_size=fleet.kv_block_tokens,
    ), cache]  # fmt: skip
    words += flags(data_parallel_size=shape.data_parallel_size) if shape.data_parallel_size > 1 else []
    words += ["--quantization", "fp8"] if quantises(arch, point) == 8 else []
    words += ["--kv-cache-dtype", "fp8"] if variant.kv_bits == 8 else []
    words += ["--kv-cache-dtype", "bfloat16"] if variant.kv_bits > arch.kv_bits else []
    words += ["--enable-expert-parallel"] if variant.is_expert_parallel else []
    words += ["--kv-transfer-config", TRANSFER] if role != "whole" else []
    if settings.speculative_acceptance:
        drafter = {"method": "eagle3", "model": DRAFTER}
        if settings.speculative_draft_s == 0:
            drafter = {"method": "ngram"}
        tokens = {"num_speculative_tokens": len(settings.speculative_acceptance)}
        words += ["--no-async-scheduling", "--speculative-config", json.dumps(drafter | tokens)]
    return words


def sglang_command(
    llm: str, arch: Llm, market: EngineMarket, point: EnginePoint, shape: EngineShape, role: str
) -> list[str]:
    """Return the arguments of SGLang's server with the same settings."""
    settings, variant, fleet = point.settings, point.variant, market.config.fleet
    words = ["python", "-m", "sglang.launch_server", *flags(
        model_path=model_name(llm, arch, point, "sglang"),
        tp_size=shape.tensor_parallel * shape.data_parallel_size,
        pp_size=shape.pipeline_parallel,
        max_running_requests=settings.max_batch,
        chunked_prefill_size=settings.token_budget,
        mem_fraction_static=fleet.kv_memory_share,
        page_size=fleet.kv_block_tokens,
    ), "--enable-mixed-chunk"]  # fmt: skip
    words += ["--disable-radix-cache"] if settings.prefix == "none" else []
    words += ["--quantization", "fp8"] if quantises(arch, point) == 8 else []
    words += ["--kv-cache-dtype", "fp8_e4m3"] if variant.kv_bits == 8 else []
    words += ["--kv-cache-dtype", "bf16"] if variant.kv_bits > arch.kv_bits else []
    if shape.data_parallel_size > 1:  # SGLang's tp counts the GPUs of all ranks
        words += [*flags(dp_size=shape.data_parallel_size), "--enable-dp-attention"]
    ranks_gpus = shape.tensor_parallel * shape.data_parallel_size
    words += ["--ep-size", str(ranks_gpus)] if variant.is_expert_parallel else []
    words += ["--disaggregation-mode", role] if role != "whole" else []
    if drafts := len(settings.speculative_acceptance):
        algorithm = "NGRAM" if settings.speculative_draft_s == 0 else "EAGLE3"
        words += flags(speculative_algorithm=algorithm, speculative_num_draft_tokens=drafts + 1)
        if algorithm == "EAGLE3":
            words += flags(
                speculative_draft_model_path=DRAFTER, speculative_num_steps=drafts, speculative_eagle_topk=1
            )
    return words


def trtllm_command(
    llm: str, arch: Llm, market: EngineMarket, point: EnginePoint, shape: EngineShape, role: str
) -> list[str]:
    """Return the words of a shell that runs `trtllm-serve` with the same settings; options may follow."""
    arguments = json.dumps(trtllm_arguments(arch, market, point, shape, role))
    model, file = model_name(llm, arch, point, "trtllm"), f"/tmp/trtllm-{role}.yaml"
    serve = shlex.join(["trtllm-serve", "serve", model, "--config", file])
    return ["sh", "-c", f'echo {shlex.quote(arguments)} > {file}; exec {serve} "$@"', "trtllm"]


def trtllm_arguments(
    arch: Llm, market: EngineMarket, point: EnginePoint, shape: EngineShape, role: str
) -> dict[str, Any]:
    """Return the settings by their names in TensorRT-LLM's file of arguments.

    Its share of the memory is what the cache takes of all that the weights leave. That of [fleet] is what
    weights and cache take of all.
    """
    settings, variant, fleet = point.settings, point.variant, market.config.fleet
    gpu = next(iter(market.catalogues.values())).gpus[shape.gpu]
    memory_bytes = shape.rank_gpus * gpu.memory_gib * 2**30
    served = dataclasses.replace(arch, **variant._asdict(), expert_ranks=shape.data_parallel_size)
    weight_bytes = served.weight_bytes
    free_share = (fleet.kv_memory_share * memory_bytes - weight_bytes) / (memory_bytes - weight_bytes)
    arguments: dict[str, Any] = {
        "tensor_parallel_size": shape.tensor_parallel * shape.data_parallel_size,
        "pipeline_parallel_size": shape.pipeline_parallel,
        "max_batch_size": settings.max_batch,
        "max_num_tokens": settings.token_budget,
        "enable_chunked_prefill": True,
        "kv_cache_config": {
            "free_gpu_memory_fraction": round(free_share, 3),
            "enable_block_reuse": settings.prefix != "none",
            "tokens_per_block": fleet.kv_block_tokens,
            "dtype": "fp8" if variant.kv_bits == 8 else "auto",
        },
    }
    if shape.data_parallel_size > 1:
        arguments["enable_attention_dp"] = True
    if variant.is_expert_parallel:
        arguments["moe_expert_parallel_size"] = shape.tensor_parallel * shape.data_parallel_size
    if role != "whole":
        arguments["cache_transceiver_config"] = {"backend": "DEFAULT"}
    if drafts := len(settings.speculative_acceptance):
        drafter = {"decoding_type": "Eagle3", "speculative_model": DRAFTER}
        if settings.speculative_draft_s == 0:
            drafter = {"decoding_type": "NGram"}
        arguments["speculative_config"] = drafter | {"max_draft_len": drafts}
    return arguments


def dynamo_arguments(
    llm: str, arch: Llm, market: EngineMarket, point: EnginePoint, shape: EngineShape, role: str
) -> list[str]:
    """Return the arguments of Dynamo's component of the point's backend."""
    if point.variant.backend == "sglang":
        return sglang_command(llm, arch, market, point, shape, role)[3:]
    mode = flags(disaggregation_mode=role)
    if point.variant.backend == "trtllm":
        arguments = repr(trtllm_arguments(arch, market, point, shape, role))  # it reads a dict of Python
        model = model_name(llm, arch, point, "trtllm")
        return [*flags(model_path=model, override_engine_args=arguments), *mode]
    return ["--model", *vllm_command(llm, arch, market, point, shape, role)[2:], *mode]


def quantises(arch: Llm, point: EnginePoint) -> int | None:
    """Return the bits to which the weights of the llm are quantised; None: they keep their own."""
    return point.variant.weight_bits if point.variant.weight_bits < arch.weight_bits else None


def flags(**values: object) -> list[str]:
    """Return options by name, with dashes."""
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def model_name(llm: str, arch: Llm, point: EnginePoint, backend: str) -> str:
    """Return the model that an engine loads: a path to replace where its weights are not published."""
    made = checkpoint_format(arch, point, backend)
    return f"/path/to/{file_stem(llm)}-{made}" if made else arch.model or llm


def checkpoint_format(arch: Llm, point: EnginePoint, backend: str) -> str | None:
    """Return the format of a checkpoint that must be made before; None: the engine quantises, or nothing is.

    vLLM and SGLang make fp8 of bf16 weights as they load them, but not nvfp4. TensorRT-LLM makes neither.
    """
    bits = quantises(arch, point)
    return {4: "nvfp4", 8: "fp8" if backend == "trtllm" else None}.get(bits or 0)
