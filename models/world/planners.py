"""Five published planners and fleetcast's own as policies of one leaderboard, and the ideas of fleetcast.

A planner decides what its paper decides. For the rest it has one default: SageServe's hourly plan of instance
counts, instances that run whole requests, dispatch and queues by the config, and the requested llm. Cauchy's
autoscaler decides its own counts.
"""

from collections.abc import Collection, Mapping
from itertools import combinations
from typing import Any

from fleetcast.models.world.policies import REPLAY_POLICIES, PolicySpec

SAGESERVE = REPLAY_POLICIES["lt_ua"]._replace(
    what="SageServe: LT-UA on its hourly plan of counts", colour="#00C292"
)
PHASE_SETTINGS: Mapping[str, Any] = {"together": False, "spread": "goodput", "opportunism": "weighted"}
REACTIVE_SETTINGS: Mapping[str, Any] = {"scaling": "reflex", "signal": "both", "order": "late_last"}

# In the order in which they are added; `policy_with_ideas` has the effect of each on a policy.
IDEAS = {
    "hourly": "a plan of each hour from a forecast (SageServe)",
    "corrected": "the corrected model on a quantile, reactive scale-out in a burst (fleetcast)",
    "phases": "GPU types by phase: combos with separate prefill and decode instances (Cauchy)",
    "levels": "levels of priority, and moves from instances that are nearly full (Llumnix, guarded)",
    "answers": "the smallest llm whose answer is good enough (Cascadia, BoUTE; fleetcast's search)",
}


def policy_with_ideas(ideas: Collection[str]) -> PolicySpec:
    """Return the policy with some of the IDEAS; without any, a constant fleet for the peak of the history."""
    policy = REPLAY_POLICIES["static"]._replace(what=", ".join(ideas) or "none of the ideas", together=True)
    is_corrected = "corrected" in ideas
    if "hourly" in ideas:
        plan = (
            {"plan": "corrected", "slot_minutes": 15}
            if is_corrected
            else {"plan": "forecast", "scaling": "lt_ua"}
        )
        policy = policy._replace(**plan)
    if is_corrected:
        policy = policy._replace(**REACTIVE_SETTINGS)
    if "phases" in ideas:
        policy = policy._replace(**PHASE_SETTINGS)
    if "levels" in ideas:
        policy = policy._replace(stack="jsq_moves", order=None)
    if "answers" in ideas:
        policy = policy._replace(answers="quality")
    return policy


BOARD_PLANNERS = {
    "sageserve": SAGESERVE,
    "llumnix_hourly": SAGESERVE._replace(
        what="multi-tier Llumnix: dispatch by freeness, headroom by level, moves of requests",
        stack="llumnix",
        colour="#C4C44D",
    ),
    "cauchy_types": REPLAY_POLICIES["cauchy"]._replace(
        what="Cauchy: GPU types by phase with its autoscaler, dispatch by goodput, opportunism",
        colour="#B03020",
    ),
    "cascadia_hourly": SAGESERVE._replace(
        what="Cascadia: a cascade with the thresholds of its Algorithm 1",
        answers="cascadia",
        colour="#8FB8E0",
    ),
    "boute_hourly": SAGESERVE._replace(
        what="BoUTE: an llm chosen at arrival, by its candidates", answers="boute", colour="#8A4FC7"
    ),
    "fleetcast": policy_with_ideas(IDEAS)._replace(
        what="fleetcast: all ideas, or what cost least on the day before", colour="#0050A0"
    ),
}


def ideas_name(ideas: Collection[str]) -> str:
    """Return the name of the policy with these ideas."""
    return "all_ideas" if len(ideas) == len(IDEAS) else "_".join(ideas) or "plain"


def candidate_ideas() -> dict[str, tuple[str, ...]]:
    """Return by name the ideas of fleetcast's candidates: the corrected plan with any of the other ideas."""
    fixed, free = tuple(IDEAS)[:2], tuple(IDEAS)[2:]
    sets = [fixed + some for n in range(len(free) + 1) for some in combinations(free, n)]
    return {ideas_name(ideas): ideas for ideas in sets}


def own_candidates() -> list[str]:
    """Return what `fleetcast` may be: a plan of `candidate_ideas`, or compact, without or with answers."""
    return [*candidate_ideas(), "compact", "compact_answers"]


def ablation_steps() -> dict[str, tuple[str, ...]]:
    """Return by name the ideas of the ablation: ideas added one by one in their order, then in reverse."""
    names = tuple(IDEAS)
    steps = [names[:n] for n in range(len(names) + 1)] + [names[n:] for n in range(len(names) - 1, 0, -1)]
    return {ideas_name(ideas): ideas for ideas in steps}


PLANNERS = {
    **{name: policy_with_ideas(ideas) for name, ideas in (ablation_steps() | candidate_ideas()).items()},
    "compact_answers": REPLAY_POLICIES["compact"]._replace(
        what="as compact, and the smallest llm whose answer is good enough", answers="quality"
    ),
    **BOARD_PLANNERS,
}
SHIPPED_POLICIES = REPLAY_POLICIES | PLANNERS
