"""Divide the replays of a nightly run into units that any process can run, in any order.

all     one unit with all policies: threads of one process, which reads the requests once
policy  one unit per policy
llm     one unit per policy and set of llms whose replays do not affect each other

Each unit writes its own files. The results do not depend on the division: every pool samples its boot times
itself, and a request's network delay depends on its arrival. Coupled llms stay in one unit. The environment
variable FLEETCAST_UNITS selects the division; one machine needs only one unit.
"""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

import numpy as np

from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.stage_cache import STAGES
from fleetcast.assets.replays.policy_inputs import fleet_and_rules
from fleetcast.assets.replays.replay_workloads import has_legs
from fleetcast.models.replay.kernel_inputs import FleetArrays
from fleetcast.models.world.option_names import LEVELS_BY_TIER
from fleetcast.models.world.toml_dataclasses import require_known

UNITS_VARIABLE = "FLEETCAST_UNITS"
CUT_NONE, CUT_BY_POLICY, CUT_BY_LLM = UNIT_CUTS = ("all", "policy", "llm")


class ReplayUnit(NamedTuple):
    """Policies that one process replays in parallel, and the llms whose requests it replays."""

    name: str  # letters, digits and _, as it becomes the name of a Dagster step
    policies: tuple[str, ...]
    llms: tuple[str, ...] = ()  # empty: all llms
    file: str = "part"  # name of its file in each table's partition
    made_from: str = ""  # digest of the replay's inputs, which its files carry


WHOLE_UNIT = ReplayUnit(CUT_NONE, ())  # the unit of a replay that is not divided


def nightly_units(settings: RunSettings, environ: Mapping[str, str] = os.environ) -> list[ReplayUnit]:
    """Return the units of a nightly run, in the order of the config; ConfigError for an unknown division."""
    cut, policies = environ.get(UNITS_VARIABLE, CUT_NONE), settings.config.replay.policies
    require_known(cut, UNIT_CUTS, "cut", UNITS_VARIABLE)
    if cut == CUT_NONE:
        return [ReplayUnit(CUT_NONE, policies)]
    if cut == CUT_BY_POLICY:
        return [ReplayUnit(_step_name(policy), (policy,)) for policy in policies]
    return [unit for policy in policies for unit in policy_units(settings, policy)]


def policy_units(settings: RunSettings, policy: str) -> list[ReplayUnit]:
    """Return the units of a policy: one for each independent set of llms."""
    parts = independent_llm_sets(settings, policy)
    if len(parts) == 1:
        return [ReplayUnit(_step_name(policy), (policy,))]
    return [
        ReplayUnit(_step_name(f"{policy}_{n}"), (policy,), llms, "+".join(llms))
        for n, llms in enumerate(parts)
    ]


def independent_llm_sets(settings: RunSettings, policy: str) -> list[tuple[str, ...]]:
    """Return sets of the catalogue's llms whose replays under the policy do not affect each other.

    All llms are one set where a request visits several llms, where levels are sampled from all requests
    together, and where a closed loop plans the whole fleet.
    """
    llms = list(settings.catalogue.llms)
    config = settings.under(policy).config
    levels = config.replay.levels
    are_sampled = levels.count > 1 and levels.by != LEVELS_BY_TIER
    if has_legs(settings, policy) or are_sampled or settings.config.rules[policy].is_closed:
        return [tuple(llms)]
    fleet, _ = fleet_and_rules(settings, policy)
    set_of_llm = list(range(len(llms)))
    for coupled in llms_sharing_cap(fleet):
        joined = {set_of_llm[llm] for llm in coupled}
        set_of_llm = [min(joined) if n in joined else n for n in set_of_llm]
    return [
        tuple(llm for llm, number in zip(llms, set_of_llm, strict=True) if number == n)
        for n in sorted({*set_of_llm})
    ]


def llms_sharing_cap(fleet: FleetArrays) -> list[set[int]]:
    """Return the llms on each region's GPU type whose cap is below the pools' maxima."""
    pools = (fleet.region, fleet.gpu[fleet.kind])
    max_gpus = np.zeros_like(fleet.cap_gpus)
    np.add.at(max_gpus, pools, np.diff(fleet.slots) * fleet.gpus[fleet.kind])
    can_bind = max_gpus > fleet.cap_gpus
    return [
        set(fleet.llm[(pools[0] == region) & (pools[1] == gpu)].tolist())
        for region, gpu in np.argwhere(can_bind)
    ]


def find_unit(settings: RunSettings, name: str) -> ReplayUnit:
    """Return the unit of this name; ConfigError where this process uses another division."""
    units = {unit.name: unit for unit in nightly_units(settings)}
    require_known(name, units, "unit", UNITS_VARIABLE)
    return units[name]


def delete_other_outputs(settings: RunSettings, day: date, units: Sequence[ReplayUnit]) -> None:
    """Delete the day's outputs of all policies and units that are not in `units`."""
    kept = {(policy, unit.file) for unit in units for policy in unit.policies}
    for table in STAGES["replays"].made:
        for path in settings.lake.files(table, trace=settings.trace, day=day):
            if (path.parent.name.removeprefix("policy="), path.stem) not in kept:
                settings.lake.remove(path)


def _step_name(text: str) -> str:
    return re.sub(r"\W", "_", text)
