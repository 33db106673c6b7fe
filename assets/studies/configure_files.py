"""The files of an answer of `fleetcast configure`: JSON, commands, a config, Kubernetes objects."""

import json
import shlex
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import Any

import yaml

from fleetcast.assets.pages.templates import fill_template
from fleetcast.assets.plans.cluster_workloads import dns_label
from fleetcast.assets.studies.configure_answer import EngineAnswer
from fleetcast.assets.studies.configure_explanation import explain_answer
from fleetcast.assets.studies.configure_traffic import ConfigureTraffic
from fleetcast.assets.studies.engine_commands import (
    ENGINE_PORT,
    EngineCommand,
    describe_point,
    describe_shape,
    engine_commands,
    flags,
)
from fleetcast.models.configure.engine_points import EngineMarket, EnginePoint
from fleetcast.models.configure.fleet_trials import FleetScore
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import BACKEND_TITLES, VLLM
from fleetcast.models.world.catalogue_overrides import LATENCY_SOURCE, PACKAGE_SOURCE
from fleetcast.models.world.config_loading import CONFIG_DIR
from fleetcast.models.world.engine_answers import ANSWER_VERSION
from fleetcast.models.world.model_rows import file_stem, render_model_key
from fleetcast.models.world.project_paths import HOME

CONFIGURED = HOME / "data" / "figures" / "configure"
IMAGES = {
    "vllm": "vllm/vllm-openai:latest",
    "sglang": "lmsysorg/sglang:latest",
    "trtllm": "nvcr.io/nvidia/tensorrt-llm/release:1.2.0",
}
DYNAMO_IMAGE = "nvcr.io/nvidia/ai-dynamo/{}-runtime:latest"
DYNAMO_RUNTIMES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrtllm"}
TRANSFER_PORT = 5600  # vLLM's VLLM_NIXL_SIDE_CHANNEL_PORT
PRODUCT_LABEL = "nvidia.com/gpu.product"  # of NVIDIA's GPU feature discovery
ROUTERS_IN_WORDS = {
    "round_robin": "to each instance in turn",
    "least_kv": "to the instance with the least used KV cache",
    "least_prefill": "to the instance with the fewest prompt tokens before their first token",
    "least_work": "to the instance with the fewest tokens left, without those that are cached there",
}
# Dynamo's router mode: the same, or else the nearest, which weighs prompt tokens, used and shared blocks.
DYNAMO_ROUTERS, NEAREST_DYNAMO_ROUTER = {"round_robin": "round-robin"}, "kv"


def describe_requirements(commands: Sequence[EngineCommand]) -> list[str]:
    """Return sentences: what the cost depends on, and the commands do not say."""
    first, lines = commands[0], list[str]()
    routing = first.point.settings.routing
    if max(command.instances for command in commands) > 1:
        lines.append(f"Router between the instances of a role: {routing}, {ROUTERS_IN_WORDS[routing]}.")
        lines.append(
            "A plain Service spreads connections by chance: the attainment that was replayed is lost."
        )
    if rates := first.point.settings.speculative_acceptance:
        lines.append(
            f"Each step checks {len(rates)} draft tokens, accepted at the rates {list(rates)}. Compare "
            "vllm:spec_decode_num_accepted_tokens_per_pos with them, and name your own drafter."
        )
    if made := first.checkpoint_format(first.backend):
        lines.append(
            f"The weights have {first.quantised_bits} bits ({made}). Replace {first.model(first.backend)} by "
            f"the path of a checkpoint of {first.arch.model or first.llm} in this format."
        )
    return lines


def render_commands(commands: Sequence[EngineCommand]) -> str:
    """Return a shell file that runs one instance of each role, with other backends' commands as comments."""
    lines = ["#!/bin/sh", "# One instance of each role on this machine."]
    lines += [f"# {line}" for line in describe_requirements(commands)]
    if len(commands) > 1:
        lines.append("# A proxy sends each request to a prefill instance, then to a decode instance.")
    first = 0
    for number, command in enumerate(commands):
        devices = ",".join(str(first + n) for n in range(command.shape.gpus))
        first += command.shape.gpus
        variables = [f"CUDA_VISIBLE_DEVICES={devices}"]
        if len(commands) > 1 and command.backend == VLLM:
            variables.append(f"VLLM_NIXL_SIDE_CHANNEL_PORT={TRANSFER_PORT + number}")
        port = flags(port=ENGINE_PORT + number)
        lines += [
            "",
            f"# {command.role}: {command.instances} instance{'s'[: command.instances - 1]} on "
            f"{describe_shape(command.shape)}",
            *(
                f"# {BACKEND_TITLES[name]} (priced with {BACKEND_TITLES[command.backend]}'s seconds): "
                f"{shlex.join([*words, *port])}"
                for name, words in command.by_backend.items()
                if name != command.backend
            ),
            f"{' '.join(variables)} {shlex.join([*command.words, *port])} &",
        ]
    return "\n".join([*lines, "wait"]) + "\n"


def render_config(llm: str, market: EngineMarket, score: FleetScore) -> str:
    """Return a config of fleetcast, based on the market's: `fleetcast try` replays it as LLM@config."""
    file = market.config.file
    return fill_template(
        Path(__file__).with_name("fleet.toml.j2"),
        {"toml": json.dumps},
        llm=llm,
        base=file.stem if file.parent == CONFIG_DIR else str(file),
        settings=score.point.settings,
        frontend_s=market.config.fleet.frontend_s,
        pools=render_pools(score),
        overrides=render_overrides(llm, market.catalogue_of(score.point), score.point),
    )


def render_pools(score: FleetScore) -> list[str]:
    """Return the pools of a fleet as tables of a config, each on one line."""
    pools = []
    for pool, count in score.point.pools(score.counts):
        stages = f", pipeline_parallel = {pool.pipeline_parallel}" if pool.pipeline_parallel > 1 else ""
        role = f', role = "{pool.role}"' if pool.role != "whole" else ""
        ranks = f", data_parallel_size = {pool.data_parallel_size}" if pool.data_parallel_size > 1 else ""
        pools.append(
            f'{{ gpu = "{pool.gpu}", tensor_parallel = {pool.tensor_parallel}{stages}{ranks}{role}, '
            f"instances_at_start = {count}, min_instances = {count}, max_instances = {count} }}"
        )
    return pools


def render_overrides(llm: str, catalogue: Catalogue, point: EnginePoint) -> list[str]:
    """Return the lines of [catalogue]: the profiles' source, bits, prices, and targets of the tiers."""
    lines = [
        "[catalogue]",
        f'{LATENCY_SOURCE} = "{PACKAGE_SOURCE}"',
        "",
        f'[catalogue.llms."{llm}"]',
        *render_model_key(llm, catalogue.llms[llm], load_catalogue().llms),
        *(f"{key} = {json.dumps(value)}" for key, value in point.variant._asdict().items()),
    ]
    for gpu in dict.fromkeys(shape.gpu for shape in point.shapes):
        lines += ["", f'[catalogue.gpus."{gpu}"]', f"usd_per_hour = {catalogue.gpus[gpu].usd_per_hour}"]
    for name, tier in catalogue.tiers.items():
        targets = {"ttft_slo_s": tier.ttft_slo_s, "tpot_slo_s": tier.tpot_slo_s}
        lines += ["", f'[catalogue.tiers."{name}"]']
        lines += [f"{key} = {seconds}" for key, seconds in targets.items() if seconds is not None]
    return lines


def render_kubernetes(commands: Sequence[EngineCommand]) -> str:
    """Return a Deployment of Kubernetes, or a DynamoGraphDeployment where prefill and decode are apart.

    Comments before it say what it does not set.
    """
    routing, backend = commands[0].point.settings.routing, commands[0].backend
    notes = [
        *describe_requirements(commands),
        f"Nodes are chosen by their label {PRODUCT_LABEL}. Compare: kubectl get nodes -L {PRODUCT_LABEL}",
    ]
    if len(commands) > 1 and routing not in DYNAMO_ROUTERS:
        notes.append(f"Dynamo has no {routing}. Its mode {NEAREST_DYNAMO_ROUTER} is near, not equal.")
    return fill_template(
        Path(__file__).with_name("engines.yaml.j2"),
        {"yaml": yaml_scalar},
        notes=notes,
        name=dns_label(commands[0].llm),
        commands=commands,
        port=ENGINE_PORT,
        product_label=PRODUCT_LABEL,
        backend=backend,
        image=IMAGES[backend],
        dynamo_image=DYNAMO_IMAGE.format(DYNAMO_RUNTIMES[backend]),
        router_mode=DYNAMO_ROUTERS.get(routing, NEAREST_DYNAMO_ROUTER),
    )


def yaml_scalar(text: str) -> str:
    """Return a text as a value of YAML on one line, in quotes where it needs them."""
    return yaml.safe_dump(text, width=float("inf")).removesuffix("...\n").rstrip()


def answer_json(answer: EngineAnswer, traffic: ConfigureTraffic) -> str:
    """Return the answer as JSON."""
    document = {
        "version": ANSWER_VERSION,
        "llm": answer.query.llm,
        "traffic": {"name": traffic.name, "requests": traffic.requests, "hours": len(traffic.hours)},
        "points_considered": answer.search.considered,
        "points_replayed": answer.search.replayed,
        "replays": answer.search.replays,
        "best": score_fields(answer.best),
        "usd_per_million_tokens_interval": list(answer.interval),
        "profile_error_share": answer.error_share,
        "others": [score_fields(score) for score in answer.search.finalists[1:]],
        "front": [score_fields(score) for score in answer.search.front],
        "changes": [
            {
                "change": changed.change,
                "best": changed.best and score_fields(changed.best),
                "present": changed.kept and score_fields(changed.kept),
                "present_usd_per_hour": changed.present_usd_per_hour,
            }
            for changed in answer.changes
        ],
        "vllm_defaults": answer.defaults and score_fields(answer.defaults),
        "limits": [limit._asdict() for limit in answer.limits],
        "explanation": explain_answer(answer),
        "not_in_the_space": dict(answer.market.refused),
    }
    return json.dumps(document, indent=2) + "\n"


def score_fields(score: FleetScore) -> dict[str, Any]:
    """Return a score as plain values."""
    point = score.point
    return {
        "engine": describe_point(point),
        **point.variant._asdict(),
        "pools": [
            {**shape._asdict(), "instances": count}
            for shape, count in zip(point.shapes, score.counts, strict=True)
        ],
        **point.settings._asdict(),
        "gpus": sum(shape.gpus * n for shape, n in zip(point.shapes, score.counts, strict=True)),
        "usd_per_hour": score.usd_per_hour,
        "usd_per_million_tokens": score.usd_per_million_tokens,
        "attainment_share": dict(score.attained),
        **{name: None if isnan(seconds) else seconds for name, seconds in score.seconds.items()},
    }


def write_answer_files(
    answer: EngineAnswer, traffic: ConfigureTraffic, catalogue: Catalogue, folder: Path | None
) -> Path:
    """Write the JSON, the engines' commands, the config and the Kubernetes objects; return the folder."""
    llm, arch = answer.query.llm, catalogue.llms[answer.query.llm]
    folder = folder or CONFIGURED / file_stem(llm)
    commands = engine_commands(llm, arch, answer.market, answer.best)
    files = {
        "answer.json": answer_json(answer, traffic),
        "engines.sh": render_commands(commands),
        "fleet.toml": render_config(llm, answer.market, answer.best),
        "engines.yaml": render_kubernetes(commands),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder
