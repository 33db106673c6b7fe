"""Write results of `fleetcast calibrate`: a profile as block of latency.toml, an engine as config line."""

import dataclasses
import json
import os
import tomllib
from pathlib import Path
from typing import Any

from fleetcast.models.world.catalogue import CATALOGUE_DIR
from fleetcast.models.world.catalogue_entries import LatencyProfile
from fleetcast.models.world.fleet_config import Deployment

LATENCY_TOML = CATALOGUE_DIR / "latency.toml"
PROFILE_BLOCK = "[[profile]]\n"


def profile_as_toml(profile: LatencyProfile, frontend_s: float = 0.0) -> str:
    """Return the profile as a block of data/catalogue/latency.toml; a comment has the front end, s."""
    fields = ((name, value) for name, value in dataclasses.asdict(profile).items() if value is not None)
    block = PROFILE_BLOCK + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields)
    return block + (
        f"# without the front end: add [fleet] frontend_s = {frontend_s:g}\n" if frontend_s else ""
    )


def write_profile(profile: LatencyProfile, path: Path, frontend_s: float = 0.0) -> bool:
    """Write the profile into a latency.toml, in place of one of the same deployment or at the end.

    `frontend_s` is that of its engine, for a comment. Returns whether a profile was replaced. The file is
    replaced atomically.
    """
    head, *blocks = path.read_text(encoding="utf-8").split(PROFILE_BLOCK)
    kept = [
        block for block in blocks if profile_identity(tomllib.loads(block)) != profile_identity(vars(profile))
    ]
    parts = [head, *(PROFILE_BLOCK + block for block in kept), profile_as_toml(profile, frontend_s)]
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("\n\n".join(part.rstrip("\n") for part in parts) + "\n", encoding="utf-8")
    os.replace(temporary, path)
    return len(kept) < len(blocks)


def profile_identity(fields: dict[str, Any]) -> tuple[Any, ...]:
    """Return the key of a profile: llm, GPU type, tensor parallelism."""
    return fields.get("llm"), fields.get("gpu"), fields.get("tensor_parallel")


def deployment_line(llm: str, deployment: Deployment) -> str:
    """Return the measured engine as a line of a config's [fleet.deployments]."""
    default = Deployment(deployment.gpu, deployment.tensor_parallel)
    fields = {
        name: value
        for name, value in dataclasses.asdict(deployment).items()
        if name in ("gpu", "tensor_parallel") or value != getattr(default, name)
    }
    return f"{json.dumps(llm)} = {{ {', '.join(f'{n} = {json.dumps(v)}' for n, v in fields.items())} }}"
