"""The knob of each policy, the number that trades cost for attainment, and the readings that a search tries.

A knob is a factor of the policy's shipped value. A larger factor holds fewer instances: it lowers the cost
and the attainment. So one search serves all policies.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fleetcast.models.world.policies import SIGNAL_SCALINGS, PolicySpec

SCALE_OUT_SHARE, SCALE_IN_SHARE = 0.7, 0.3  # SageServe 4; 0.7 is also a usual target of hpa
NARROW_SCALE_IN_SHARE = 0.5
PRESSURE_SHARE, MOST_PRESSURE_SHARE = 0.6, 0.99  # SageServe 7.1; at 1 the rule of busy instances never acts
# Free blocks per running request. Multi-tier Llumnix prints thresholds for instances of 128 blocks; those of
# today have tens of thousands, and are busy long before their memory is full.
FREENESS_OUT, FREENESS_IN = 300.0, 1200.0
LATE_LAST = {"order": "late_last"}


class Reading(NamedTuple):
    """One reading of a policy: settings that its knob leaves alone, by field of CustomPolicy."""

    name: str
    settings: Mapping[str, Any] = {}
    scale_in_share: float = SCALE_IN_SHARE  # of a rule with two thresholds, at factor 1

    def knobs(self, rule: PolicySpec, factor: float) -> dict[str, Any]:
        """Return the settings of the policy `rule` at a factor of its knob, by field of CustomPolicy."""
        return {**self.settings, **factor_settings(rule, factor, self.scale_in_share)}


def factor_settings(
    rule: PolicySpec, factor: float, scale_in_share: float = SCALE_IN_SHARE
) -> dict[str, float]:
    """Return the values of a policy's knob: the shipped ones times `factor`, or divided by it.

    The knob is the capacity share of a plan or a reactive correction, the two thresholds of a reactive rule,
    the target of hpa, theta of Chiron, or the two thresholds of freeness.
    """
    if rule.uses_capacity_share:
        return {"capacity_share": factor}
    if rule.scaling == "chiron":
        return {"pressure_share": min(MOST_PRESSURE_SHARE, PRESSURE_SHARE * factor)}
    if rule.scaling == "freeness":
        return {"freeness_out": FREENESS_OUT / factor, "freeness_in": FREENESS_IN / factor}
    thresholds = {"scale_out_share": SCALE_OUT_SHARE * factor}
    return thresholds if rule.scaling == "hpa" else {**thresholds, "scale_in_share": scale_in_share * factor}


def policy_readings(rule: PolicySpec) -> list[Reading]:
    """Return the readings of a policy that a search tries, the most promising first; at most three.

    All policies may put late requests last, unless the queue order is part of their idea, and every rule that
    observes a signal may observe memory and waiting work.
    """
    order = {} if rule.order or rule.stack != "config" else LATE_LAST
    if rule.scaling == "reactive":
        both = {"signal": "both", **order}
        return [
            Reading("memory and work", both),
            Reading("memory and work, narrow band", both, NARROW_SCALE_IN_SHARE),
            Reading("memory", {"signal": "memory", **order}),
        ]
    if rule.scaling in SIGNAL_SCALINGS:
        readings = (("memory and work", "both"), ("memory", "memory"))
        return [Reading(name, {"signal": signal, **order}) for name, signal in readings]
    if rule.plan == "corrected":
        return [
            Reading("as shipped", order),
            Reading("a plan each 15 minutes", {"slot_minutes": 15, **order}),
        ]
    found = [Reading("late requests last", order)] if order else []
    return [*found, Reading("as shipped")]
