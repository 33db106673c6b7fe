"""The commands that run an instance of a chosen engine point: vLLM, SGLang, TensorRT-LLM, Dynamo."""

import dataclasses
import json
import shlex
from typing import Any, NamedTuple

from fleetcast.models.configure.engine_points import EngineMarket, EnginePoint, EngineShape
from fleetcast.models.configure.fleet_trials import FleetScore
from fleetcast.models.world.catalogue_entries import BACKEND_TITLES, VLLM, Gpu, Llm
from fleetcast.models.world.model_rows import file_stem

WEIGHT_NAMES, CACHE_NAMES = {16: "bf16", 8: "fp8", 4: "fp4"}, {16: "bf16", 8: "fp8"}
ENGINE_PORT = 8000
DRAFTER = "/path/to/drafter"
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
    """The command of one instance of a role of a point."""

    llm: str
    arch: Llm  # the llm without the point's variant
    market: EngineMarket
    point: EnginePoint
    role: str
    shape: EngineShape
    instances: int

    @property
    def gpu(self) -> Gpu:
        """The GPU type in the catalogue."""
        return next(iter(self.market.catalogues.values())).gpus[self.shape.gpu]

    @property
    def product(self) -> str:
        """The label of its nodes; the name of the GPU type where none is known."""
        return PRODUCTS.get(self.gpu.system or "", self.shape.gpu)

    @property
    def backend(self) -> str:
        """The backend whose seconds the cost has."""
        return self.point.variant.backend

    @property
    def by_backend(self) -> dict[str, list[str]]:
        """The command of every backend."""
        return {"vllm": vllm_command(self), "sglang": sglang_command(self), "trtllm": trtllm_command(self)}

    @property
    def words(self) -> list[str]:
        """The command of the backend whose seconds the cost has."""
        return self.by_backend[self.backend]

    @property
    def server(self) -> list[str]:
        """The same, for requests from other machines."""
        return [*self.words, *flags(host="0.0.0.0", port=ENGINE_PORT)]

    @property
    def dynamo(self) -> list[str]:
        """The arguments of Dynamo's component of this backend."""
        if self.backend == "sglang":
            return sglang_command(self)[3:]
        mode = flags(disaggregation_mode=self.role)
        if self.backend == "trtllm":
            arguments = repr(trtllm_arguments(self))  # it reads a dict of Python
            return [*flags(model_path=self.model("trtllm"), override_engine_args=arguments), *mode]
        return ["--model", *vllm_command(self)[2:], *mode]

    @property
    def quantised_bits(self) -> int | None:
        """The bits to which the weights of the llm are quantised; None: they keep their own."""
        bits = self.point.variant.weight_bits
        return bits if bits < self.arch.weight_bits else None

    def model(self, backend: str) -> str:
        """Return the model that a backend loads: a path to replace where its weights are not published."""
        made = self.checkpoint_format(backend)
        return f"/path/to/{file_stem(self.llm)}-{made}" if made else self.arch.model or self.llm

    def checkpoint_format(self, backend: str) -> str | None:
        """Return the format of a checkpoint to make before; None: the backend quantises, or nothing is.

        vLLM and SGLang make fp8 of bf16 weights as they load them, but not nvfp4. TensorRT-LLM makes neither.
        """
        return {4: "nvfp4", 8: "fp8" if backend == "trtllm" else None}.get(self.quantised_bits or 0)


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
    """Return the command of each role; `arch` is the llm without the variant."""
    point = score.point
    roles = ("whole",) if point.decode is None else ("prefill", "decode")
    return [
        EngineCommand(llm, arch, market, point, *of_role)
        for of_role in zip(roles, point.shapes, score.counts, strict=True)
    ]


def vllm_command(engine: EngineCommand) -> list[str]:
    """Return the arguments of `vllm serve`."""
    shape, fleet = engine.shape, engine.market.config.fleet
    settings, variant = engine.point.settings, engine.point.variant
    cache = "--enable-prefix-caching" if settings.prefix != "none" else "--no-enable-prefix-caching"
    words = ["vllm", "serve", engine.model("vllm"), *flags(
        tensor_parallel_size=shape.tensor_parallel,
        pipeline_parallel_size=shape.pipeline_parallel,
        max_num_seqs=settings.max_batch,
        max_num_batched_tokens=settings.token_budget,
        gpu_memory_utilization=fleet.kv_memory_share,
        block_size=fleet.kv_block_tokens,
    ), cache]  # fmt: skip
    words += flags(data_parallel_size=shape.data_parallel_size) if shape.data_parallel_size > 1 else []
    words += ["--quantization", "fp8"] if engine.quantised_bits == 8 else []
    words += ["--kv-cache-dtype", "fp8"] if variant.kv_bits == 8 else []
    words += ["--kv-cache-dtype", "bfloat16"] if variant.kv_bits > engine.arch.kv_bits else []
    words += ["--enable-expert-parallel"] if variant.is_expert_parallel else []
    words += ["--kv-transfer-config", TRANSFER] if engine.role != "whole" else []
    if settings.speculative_acceptance:
        drafter = {"method": "eagle3", "model": DRAFTER}
        if settings.speculative_draft_s == 0:
            drafter = {"method": "ngram"}
        tokens = {"num_speculative_tokens": len(settings.speculative_acceptance)}
        words += ["--no-async-scheduling", "--speculative-config", json.dumps(drafter | tokens)]
    return words


def sglang_command(engine: EngineCommand) -> list[str]:
    """Return the arguments of SGLang's server with the same settings."""
    shape, fleet = engine.shape, engine.market.config.fleet
    settings, variant = engine.point.settings, engine.point.variant
    words = ["python", "-m", "sglang.launch_server", *flags(
        model_path=engine.model("sglang"),
        tp_size=shape.tensor_parallel * shape.data_parallel_size,
        pp_size=shape.pipeline_parallel,
        max_running_requests=settings.max_batch,
        chunked_prefill_size=settings.token_budget,
        mem_fraction_static=fleet.kv_memory_share,
        page_size=fleet.kv_block_tokens,
    ), "--enable-mixed-chunk"]  # fmt: skip
    words += ["--disable-radix-cache"] if settings.prefix == "none" else []
    words += ["--quantization", "fp8"] if engine.quantised_bits == 8 else []
    words += ["--kv-cache-dtype", "fp8_e4m3"] if variant.kv_bits == 8 else []
    words += ["--kv-cache-dtype", "bf16"] if variant.kv_bits > engine.arch.kv_bits else []
    if shape.data_parallel_size > 1:  # SGLang's tp counts the GPUs of all ranks
        words += [*flags(dp_size=shape.data_parallel_size), "--enable-dp-attention"]
    ranks_gpus = shape.tensor_parallel * shape.data_parallel_size
    words += ["--ep-size", str(ranks_gpus)] if variant.is_expert_parallel else []
    words += ["--disaggregation-mode", engine.role] if engine.role != "whole" else []
    if drafts := len(settings.speculative_acceptance):
        algorithm = "NGRAM" if settings.speculative_draft_s == 0 else "EAGLE3"
        words += flags(speculative_algorithm=algorithm, speculative_num_draft_tokens=drafts + 1)
        if algorithm == "EAGLE3":
            words += flags(
                speculative_draft_model_path=DRAFTER, speculative_num_steps=drafts, speculative_eagle_topk=1
            )
    return words


def trtllm_command(engine: EngineCommand) -> list[str]:
    """Return the words of a shell that runs `trtllm-serve` with the same settings; options may follow."""
    arguments = json.dumps(trtllm_arguments(engine))
    model, file = engine.model("trtllm"), f"/tmp/trtllm-{engine.role}.yaml"
    serve = shlex.join(["trtllm-serve", "serve", model, "--config", file])
    return ["sh", "-c", f'echo {shlex.quote(arguments)} > {file}; exec {serve} "$@"', "trtllm"]


def trtllm_arguments(engine: EngineCommand) -> dict[str, Any]:
    """Return the settings by their names in TensorRT-LLM's file of arguments.

    Its share of the memory is what the cache takes of all that the weights leave. That of [fleet] is what
    weights and cache take of all.
    """
    shape, fleet = engine.shape, engine.market.config.fleet
    settings, variant = engine.point.settings, engine.point.variant
    memory_bytes = shape.rank_gpus * engine.gpu.memory_gib * 2**30
    served = dataclasses.replace(engine.arch, **variant._asdict(), expert_ranks=shape.data_parallel_size)
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
    if engine.role != "whole":
        arguments["cache_transceiver_config"] = {"backend": "DEFAULT"}
    if drafts := len(settings.speculative_acceptance):
        drafter = {"decoding_type": "Eagle3", "speculative_model": DRAFTER}
        if settings.speculative_draft_s == 0:
            drafter = {"decoding_type": "NGram"}
        arguments["speculative_config"] = drafter | {"max_draft_len": drafts}
    return arguments


def flags(**values: object) -> list[str]:
    """Return options by name, with dashes."""
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]
