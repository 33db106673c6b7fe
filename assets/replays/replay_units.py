"""What the replays of a night are cut into: units that any process may play, in any order.

all     all policies: threads of one process that read the requests once
policy  a policy each
llm     a policy each, and of it the llms whose replay no other's touches

Each unit writes files of its own, and the same numbers however the night is cut: pools draw their boots by
themselves, and a request draws its delay by its arrival. Llms stay together where something couples them.
FLEETCAST_UNITS says which; one machine needs but one unit.
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
    """Policies that one process replays side by side, and the llms whose requests it plays."""

    name: str  # letters, digits and _: a step of Dagster's is called so
    policies: tuple[str, ...]
    llms: tuple[str, ...] = ()  # none: all of them
    file: str = "part"  # of each table's partition
    made_from: str = ""  # the content of all that it is replayed from, which its files tell


WHOLE_UNIT = ReplayUnit(CUT_NONE, ())  # what a policy's replay is written as where nothing is cut


def nightly_units(settings: RunSettings, environ: Mapping[str, str] = os.environ) -> list[ReplayUnit]:
    """The units of a night, in the order of the config; ConfigError for a cut that nobody knows."""
    cut, policies = environ.get(UNITS_VARIABLE, CUT_NONE), settings.config.replay.policies
    require_known(cut, UNIT_CUTS, "cut", UNITS_VARIABLE)
    if cut == CUT_NONE:
        return [ReplayUnit(CUT_NONE, policies)]
    if cut == CUT_BY_POLICY:
        return [ReplayUnit(_step_name(policy), (policy,)) for policy in policies]
    return [unit for policy in policies for unit in policy_units(settings, policy)]


def policy_units(settings: RunSettings, policy: str) -> list[ReplayUnit]:
    """The units of a policy: one for each set of llms that go apart."""
    parts = independent_llm_sets(settings, policy)
    if len(parts) == 1:
        return [ReplayUnit(_step_name(policy), (policy,))]
    return [
        ReplayUnit(_step_name(f"{policy}_{n}"), (policy,), llms, "+".join(llms))
        for n, llms in enumerate(parts)
    ]


def independent_llm_sets(settings: RunSettings, policy: str) -> list[tuple[str, ...]]:
    """The catalogue's llms in sets: nothing that happens to one set under the policy touches another.

    All are one set where a request visits several llms, where levels are drawn from all requests together,
    and where a plan is made of the fleet as it is.
    """
    llms = list(settings.catalogue.llms)
    config = settings.under(policy).config
    levels = config.replay.levels
    are_drawn = levels.count > 1 and levels.by != LEVELS_BY_TIER
    if has_legs(settings, policy) or are_drawn or settings.config.rules[policy].is_closed:
        return [tuple(llms)]
    fleet, _ = fleet_and_rules(settings, policy)
    belongs = list(range(len(llms)))
    for together in llms_sharing_cap(fleet):
        least = min(belongs[llm] for llm in together)
        joined = {belongs[llm] for llm in together}
        belongs = [least if of in joined else of for of in belongs]
    return [tuple(llm for llm, of in zip(llms, belongs, strict=True) if of == n) for n in sorted({*belongs})]


def llms_sharing_cap(fleet: FleetArrays) -> list[set[int]]:
    """Of each region and GPU type whose cap may bind, the llms that draw on it."""
    pools = (fleet.region, fleet.gpu[fleet.kind])
    most = np.zeros_like(fleet.cap_gpus)
    np.add.at(most, pools, np.diff(fleet.slots) * fleet.gpus[fleet.kind])
    binds = most > fleet.cap_gpus
    return [
        set(fleet.llm[(pools[0] == region) & (pools[1] == gpu)].tolist())
        for region, gpu in np.argwhere(binds)
    ]


def find_unit(settings: RunSettings, name: str) -> ReplayUnit:
    """The unit of this name; ConfigError where this process cuts the day otherwise than who named it."""
    units = {unit.name: unit for unit in nightly_units(settings)}
    require_known(name, units, "unit", UNITS_VARIABLE)
    return units[name]


def delete_other_outputs(settings: RunSettings, day: date, units: Sequence[ReplayUnit]) -> None:
    """What was written of the day by policies, or by units, that are none of these goes."""
    kept = {(policy, unit.file) for unit in units for policy in unit.policies}
    for table in STAGES["replays"].made:
        for path in settings.lake.files(table, trace=settings.trace, day=day):
            if (path.parent.name.removeprefix("policy="), path.stem) not in kept:
                path.unlink()


def _step_name(text: str) -> str:
    return re.sub(r"\W", "_", text)
