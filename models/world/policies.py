"""The policies that the replay compares. A new one is a row here and in models/replay/README.md."""

from collections.abc import Mapping
from typing import NamedTuple

ANSWER_PLANNERS = ("quality", "cascadia", "boute")  # plans of who answers (assets/plans/nightly_quality.py)
SIGNAL_SCALINGS = (
    "reactive",
    "lt_u",
    "lt_ua",
)  # the scalings that look at a signal; hpa looks at memory always


class PolicySpec(NamedTuple):
    """A row of the scoreboard: a plan (or none), the scaling rule, and how the instances are pooled."""

    # "peak", "melange", "forecast", "corrected", "day_ahead", "truth": a plan of each hour (assets/plans);
    # "standing": the instances of the plan of who answers, all day (assets/plans/nightly_quality.py);
    # "recent": targets every few minutes from those before (assets/replays/policy_inputs.py); "autoscaler":
    # every
    # few seconds, by Cauchy's rule (assets/replays/cauchy_autoscaler.py); None: no plan
    plan: str | None
    scaling: str  # one of SCALINGS of world/mechanisms.py
    what: str
    colour: str  # in every figure
    pooling: str = "unified"  # one of POOLINGS of pool_rows.py
    stack: str = "config"  # a row of STACKS; what is said below goes before it
    signal: str | None = None  # what its rule looks at (signal.py); None: as the config says, likewise:
    order: str | None = None  # of an instance's queue (queue.py)
    routing: str | None = None  # to an instance (route.py)
    is_balanced: bool | None = None  # requests move between its instances (balance.py)
    spread: str | None = None  # between the pools of an llm in a region (spread.py)
    opportunism: str | None = None  # where prefill and decode stand apart (opportunism.py)
    answers: str | None = None  # one of ANSWERS, whose plan says who answers; None: [replay.cascades]
    together: bool = False  # its plan holds teams of those llms only that have no instance for whole requests
    start: str | None = None  # which instances serve at the start: those of the first plan, or all
    capacity_share: float | None = None  # of an instance's capacity that its plan counts on
    quantile: float | None = None  # of the hour's maximum that its plan covers
    slot_minutes: int = 60  # for which a corrected plan holds, where instances boot in half of it
    is_closed: bool = False  # each hour is planned when it begins, from the fleet that the replay has then

    @property
    def programme(self) -> str | None:
        """The kind of hourly plan that it follows; None: it has none."""
        return None if self.plan in ("recent", "autoscaler", "standing") else self.plan


REPLAY_POLICIES = {
    "static": PolicySpec(
        "peak", "follow", "one fleet, sized for the peak of the history, never changed", colour="#767676"
    ),
    "siloed": PolicySpec(
        None,
        "reactive",
        "siloed reactive (SageServe 4): as reactive, niw on instances of its own",
        pooling="siloed",
        colour="#E69F00",
    ),
    "reactive": PolicySpec(
        None,
        "reactive",
        "unified reactive (SageServe 4): out above 70 %, in below 30 % memory",
        colour="#D55E00",
    ),
    "hpa": PolicySpec(
        None, "hpa", "Kubernetes' HorizontalPodAutoscaler on KV memory, target 70 %", colour="#8C6D31"
    ),
    "chiron": PolicySpec(
        None,
        "chiron",
        "Chiron (arXiv 2501.08090; SageServe 7.1): back-pressure, theta 0.6",
        pooling="chiron",
        signal="both",
        start="whole",
        colour="#B5A800",
    ),
    "dynamo": PolicySpec(
        "recent",
        "follow",
        "NVIDIA Dynamo's planner: every 3 minutes what the last 3 needed",
        colour="#76B900",
    ),
    "lt_i": PolicySpec(
        "forecast",
        "follow",
        "LT-I (SageServe 6.4): the hourly plan, at once",
        together=True,
        colour="#56B4E9",
    ),
    "lt_u": PolicySpec(
        "forecast",
        "lt_u",
        "LT-U (SageServe 6.4): towards the plan when memory says so",
        together=True,
        colour="#0072B2",
    ),
    "lt_ua": PolicySpec(
        "forecast",
        "lt_ua",
        "LT-UA (SageServe 6.4): LT-U, past the plan when the forecast failed",
        together=True,
        colour="#009E73",
    ),
    "corrected": PolicySpec(
        "corrected",
        "reflex",
        "the corrected programme on a quantile of the forecast; past it while more comes than was planned",
        signal="both",
        order="late_last",
        colour="#CC79A7",
    ),
    "corrected_closed": PolicySpec(
        "corrected",
        "reflex",
        "the same, each hour planned from the fleet that there is",
        is_closed=True,
        signal="both",
        order="late_last",
        colour="#882255",
    ),
    "day_ahead": PolicySpec(
        "day_ahead",
        "reflex",
        "the same, all hours planned at midnight from a forecast of the whole day",
        signal="both",
        order="late_last",
        colour="#332288",
    ),
    "llumnix": PolicySpec(
        None,
        "freeness",
        "multi-tier Llumnix: dispatch, moves and scaling by freeness, higher levels first",
        order="priority",
        routing="freeness",
        is_balanced=True,
        colour="#999933",
    ),
    "corrected_llumnix": PolicySpec(
        "corrected",
        "reflex",
        "the corrected plan with its reflex, dispatch and moves by freeness, higher levels first",
        signal="both",
        order="priority",
        routing="freeness",
        is_balanced=True,
        colour="#AA4499",
    ),
    "melange": PolicySpec(
        "melange",
        "follow",
        "Melange (arXiv 2404.14527): the cheapest GPU types for the peak of the history, never changed",
        spread="goodput",
        together=True,
        colour="#44AA99",
    ),
    "cauchy_mixed": PolicySpec(
        "autoscaler",
        "follow",
        "Cauchy* (SoCC '25): as cauchy, of instances that do both phases only",
        spread="goodput",
        together=True,
        colour="#DDCC77",
    ),
    "cauchy": PolicySpec(
        "autoscaler",
        "follow",
        "Cauchy (SoCC '25): combos by CO-LP and its autoscaler, goodput-weighted round robin, opportunism",
        spread="goodput",
        opportunism="weighted",
        colour="#661100",
    ),
    "corrected_combos": PolicySpec(
        "corrected",
        "reflex",
        "the corrected plan with its reflex, of quarters where boots are short; dispatch as Cauchy's",
        signal="both",
        order="late_last",
        spread="goodput",
        opportunism="weighted",
        slot_minutes=15,
        colour="#117733",
    ),
    "quality": PolicySpec(
        "standing",
        "follow",
        "the cheapest plan for a quality and a P95, for the peak of the history: who answers, on which GPUs",
        spread="weights",
        answers="quality",
        colour="#A6761D",
    ),
    "cascadia": PolicySpec(
        "standing",
        "follow",
        "Cascadia: a cascade, its thresholds and GPUs by Algorithm 1 for the peak of the history",
        spread="weights",
        answers="cascadia",
        colour="#6699CC",
    ),
    "boute": PolicySpec(
        "standing",
        "follow",
        "BoUTE: a router at arrival, GPUs of its candidates for the peak of the history",
        spread="weights",
        answers="boute",
        colour="#4B0082",
    ),
    "clairvoyant": PolicySpec(
        "truth",
        "reflex",
        "the same on the true demand of each hour",
        signal="both",
        order="late_last",
        colour="#222222",
    ),
}


def planned_policies(policies: Mapping[str, PolicySpec] = REPLAY_POLICIES) -> list[str]:
    """Those of the policies that have a plan of each hour."""
    return [name for name, rule in policies.items() if rule.programme is not None]
