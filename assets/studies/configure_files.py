"""What to run: engine arguments, a config of fleetcast, and Kubernetes objects of a chosen engine point."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fleetcast.assets.plans.cluster_workloads import dns_label
from fleetcast.models.configure.engine_points import EngineMarket, EnginePoint, EngineShape
from fleetcast.models.configure.fleet_trials import FleetScore
from fleetcast.models.world.catalogue_entries import Llm
from fleetcast.models.world.catalogue_overrides import LATENCY_SOURCE

VLLM_IMAGE, DYNAMO_IMAGE = "vllm/vllm-openai:latest", "nvcr.io/nvidia/ai-dynamo/vllm-runtime:latest"
WEIGHT_NAMES, CACHE_NAMES = {16: "bf16", 8: "fp8", 4: "fp4"}, {16: "bf16", 8: "fp8"}
ENGINE_PORT = 8000
TRANSFER = '{"kv_connector":"NixlConnector","kv_role":"kv_both"}'


class EngineCommand(NamedTuple):
    """The command of one instance of a role."""

    role: str
    instances: int
    shape: EngineShape
    vllm: list[str]
    sglang: list[str]


def describe_point(point: EnginePoint) -> str:
    """Return the engine of a point on one line: 8 x fp8 weights is left to the caller."""
    shapes = " > ".join(describe_shape(shape) for shape in point.shapes)
    experts = ", whole experts" if point.variant.is_expert_parallel else ""
    weights, cache = WEIGHT_NAMES[point.variant.weight_bits], CACHE_NAMES[point.variant.kv_bits]
    return f"{shapes}, {weights} weights, {cache} cache{experts}"


def describe_shape(shape: EngineShape) -> str:
    """Return the GPUs of an instance, like 4xh100-80gb, or 2x2xh100-80gb with two stages."""
    stages = f"{shape.pipeline_parallel}x" if shape.pipeline_parallel > 1 else ""
    return f"{stages}{shape.tensor_parallel}x{shape.gpu}"


def engine_commands(llm: str, arch: Llm, market: EngineMarket, score: FleetScore) -> list[EngineCommand]:
    """Return the command of each role, for vLLM and for SGLang; `arch` is the llm without the variant."""
    point = score.point
    roles = ("whole",) if point.decode is None else ("prefill", "decode")
    return [
        EngineCommand(
            role, count, shape, vllm_command(llm, arch, market, point, shape, role),
            sglang_command(llm, arch, market, point, shape, role),
        )
        for role, shape, count in zip(roles, point.shapes, score.counts, strict=True)
    ]  # fmt: skip


def vllm_command(
    llm: str, arch: Llm, market: EngineMarket, point: EnginePoint, shape: EngineShape, role: str
) -> list[str]:
    """Return the arguments of `vllm serve`."""
    settings, variant, fleet = point.settings, point.variant, market.config.fleet
    cache = "--enable-prefix-caching" if settings.prefix != "none" else "--no-enable-prefix-caching"
    words = ["vllm", "serve", arch.model or llm, *flags(
        tensor_parallel_size=shape.tensor_parallel,
        pipeline_parallel_size=shape.pipeline_parallel,
        max_num_seqs=settings.max_batch,
        max_num_batched_tokens=settings.token_budget,
        gpu_memory_utilization=fleet.kv_memory_share,
        block_size=fleet.kv_block_tokens,
    ), cache]  # fmt: skip
    words += ["--quantization", "fp8"] if quantises(arch, point) == 8 else []
    words += ["--kv-cache-dtype", "fp8"] if variant.kv_bits == 8 else []
    words += ["--enable-expert-parallel"] if variant.is_expert_parallel else []
    words += ["--kv-transfer-config", TRANSFER] if role != "whole" else []
    return words


def sglang_command(
    llm: str, arch: Llm, market: EngineMarket, point: EnginePoint, shape: EngineShape, role: str
) -> list[str]:
    """Return the arguments of SGLang's server with the same settings."""
    settings, variant, fleet = point.settings, point.variant, market.config.fleet
    words = ["python", "-m", "sglang.launch_server", *flags(
        model_path=arch.model or llm,
        tp_size=shape.tensor_parallel,
        pp_size=shape.pipeline_parallel,
        max_running_requests=settings.max_batch,
        chunked_prefill_size=settings.token_budget,
        mem_fraction_static=fleet.kv_memory_share,
    ), "--enable-mixed-chunk"]  # fmt: skip
    words += ["--disable-radix-cache"] if settings.prefix == "none" else []
    words += ["--quantization", "fp8"] if quantises(arch, point) == 8 else []
    words += ["--kv-cache-dtype", "fp8_e4m3"] if variant.kv_bits == 8 else []
    words += ["--ep-size", str(shape.tensor_parallel)] if variant.is_expert_parallel else []
    words += ["--disaggregation-mode", role] if role != "whole" else []
    return words


def quantises(arch: Llm, point: EnginePoint) -> int | None:
    """Return the bits to which the weights of the llm are quantised; None: they keep their own."""
    return point.variant.weight_bits if point.variant.weight_bits < arch.weight_bits else None


def flags(**values: object) -> list[str]:
    """Return options by name, with dashes."""
    return [word for name, value in values.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def render_commands(commands: list[EngineCommand], arch: Llm, score: FleetScore) -> str:
    """Return a shell file with the commands of all roles as comments and lines."""
    lines = ["#!/bin/sh", f"# router between the instances: {score.point.settings.routing}"]
    if quantises(arch, score.point) == 4:
        lines.append("# weights in nvfp4: give the path of a checkpoint in this format in place of the name")
    for command in commands:
        lines += [
            "",
            f"# {command.role}: {command.instances} instances on {describe_shape(command.shape)}",
            f"# vLLM\n{shlex.join(command.vllm)}",
            f"# SGLang\n# {shlex.join(command.sglang)}",
        ]
    return "\n".join(lines) + "\n"


def render_config(llm: str, market: EngineMarket, score: FleetScore) -> str:
    """Return a config of fleetcast, based on the market's: `fleetcast try` replays it as LLM@config."""
    point, settings = score.point, score.point.settings
    pools = []
    for pool, count in point.pools(score.counts):
        stages = f", pipeline_parallel = {pool.pipeline_parallel}" if pool.pipeline_parallel > 1 else ""
        role = f', role = "{pool.role}"' if pool.role != "whole" else ""
        pools.append(
            f'{{ gpu = "{pool.gpu}", tensor_parallel = {pool.tensor_parallel}{stages}{role}, '
            f"instances_at_start = {count}, min_instances = {count}, max_instances = {count} }}"
        )
    variant = point.variant
    return "\n".join(
        [
            f'based_on = "{market.config.file.stem}"',
            "",
            "[trace]",
            'name = "configured"',
            "first_day = 2025-07-01",
            "days = 2",
            "seed = 0",
            "",
            "[fleet]",
            f"max_batch = {settings.max_batch}",
            f"max_prefill_tokens = {settings.token_budget}",
            f'prefix = "{settings.prefix}"',
            'batching = "chunked"',
            "async_scheduling = true",
            "",
            "[fleet.deployments]",
            f'"{llm}" = [{", ".join(pools)}]',
            "",
            "[replay]",
            f'routing = "{settings.routing}"',
            "",
            "[catalogue]",
            f'{LATENCY_SOURCE} = "aiconfigurator-core"',
            "",
            f'[catalogue.llms."{llm}"]',
            f"weight_bits = {variant.weight_bits}",
            f"kv_bits = {variant.kv_bits}",
            f"is_expert_parallel = {str(variant.is_expert_parallel).lower()}",
            "",
        ]
    )


def render_kubernetes(llm: str, commands: list[EngineCommand]) -> str:
    """Return a Deployment of Kubernetes, or a DynamoGraphDeployment where prefill and decode are apart."""
    name = dns_label(llm)
    if len(commands) == 1:
        documents = [kubernetes_deployment(name, commands[0]), kubernetes_service(name)]
    else:
        documents = [dynamo_graph(name, commands)]
    return yaml.safe_dump_all(documents, sort_keys=False)


def kubernetes_deployment(name: str, command: EngineCommand) -> Mapping[str, Any]:
    """Return the Deployment of one role."""
    container = {
        "name": "engine",
        "image": VLLM_IMAGE,
        "command": command.vllm,
        "ports": [{"containerPort": ENGINE_PORT}],
        "resources": {"limits": {"nvidia.com/gpu": command.shape.gpus}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": ENGINE_PORT}, "periodSeconds": 5},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": command.instances,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
        },
    }


def kubernetes_service(name: str) -> Mapping[str, Any]:
    """Return the Service in front of the instances."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": ENGINE_PORT, "targetPort": ENGINE_PORT}]},
    }


def dynamo_graph(name: str, commands: list[EngineCommand]) -> Mapping[str, Any]:
    """Return the DynamoGraphDeployment of prefill and decode workers."""
    services: dict[str, Any] = {
        "Frontend": {
            "componentType": "frontend",
            "replicas": 1,
            "extraPodSpec": {"mainContainer": {"image": DYNAMO_IMAGE}},
        }
    }
    for command in commands:
        model, options = command.vllm[2], command.vllm[3:]
        options = options[: options.index("--kv-transfer-config")]
        options += ["--is-prefill-worker"] if command.role == "prefill" else []
        services[f"Vllm{command.role.capitalize()}Worker"] = {
            "componentType": "worker",
            "subComponentType": command.role,
            "replicas": command.instances,
            "resources": {"limits": {"gpu": str(command.shape.gpus)}},
            "extraPodSpec": {
                "mainContainer": {
                    "image": DYNAMO_IMAGE,
                    "command": ["python3", "-m", "dynamo.vllm"],
                    "args": ["--model", model, *options],
                }
            },
        }
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": name},
        "spec": {"services": services},
    }


def write_configure_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files into a folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
