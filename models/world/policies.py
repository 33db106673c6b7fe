"""The policies that the replay compares. A new one is a row here and in models/replay/README.md."""

from collections.abc import Mapping
from typing import NamedTuple

ANSWER_PLANNERS = ("quality", "cascadia", "boute")  # plans of model routing (assets/plans/nightly_quality.py)
SIGNAL_SCALINGS = ("reactive", "lt_u", "lt_ua", "hpa")  # scalings by a signal


class PolicySpec(NamedTuple):
    """A policy, a row of the leaderboard: plan (or none), scaling rule, pooling of instances, mechanisms.

    A plan is one of these:
    - "peak", "melange", "forecast", "corrected", "day_ahead", "truth": a plan of each hour (assets/plans);
    - "standing": the instances of the plan of model routing, all day (assets/plans/nightly_quality.py);
    - "recent": targets every few minutes from the minutes before (assets/replays/policy_inputs.py);
    - "compact": targets every 15 s, during the replay (assets/replays/compact_schedule.py);
    - "own": targets of an installed package's policy (models/world/own_policies.py);
    - "autoscaler": every few seconds, by Cauchy's rule (assets/replays/cauchy_autoscaler.py);
    - None: no plan.
    """

    plan: str | None
    scaling: str  # one of SCALINGS of mechanisms.py
    what: str  # description
    colour: str  # in every figure
    pooling: str = "unified"  # one of POOLINGS of pool_rows.py
    stack: str = "config"  # a row of REPLAY_STACKS; the fields below take precedence
    signal: str | None = None  # that its rule observes (scaling_signal.py); None: as in the config, likewise:
    order: str | None = None  # of an instance's queue (queue.py)
    routing: str | None = None  # to an instance (route.py)
    is_balanced: bool | None = None  # requests move between its instances (balance.py)
    batch_pull: str | None = None  # rule by which pools take deferred requests (queue_manager.py)
    spread: str | None = None  # between the pools of an llm in a region (spread.py)
    opportunism: str | None = None  # with separate prefill and decode instances (opportunism.py)
    answers: str | None = None  # planner of model routing, of ANSWER_PLANNERS; None: [replay.cascades]
    together: bool = False  # its plan has teams only of llms without instances for whole requests
    start: str | None = None  # instances that serve at the start: those of the first plan, or all
    capacity_share: float | None = None  # utilisation target of its plan, of an instance's capacity
    capacity_by_size: bool | None = None  # its plan knows what small pools sustain; None: as in the config
    quantile: float | None = None  # of the hour's maximum that its plan covers
    scale_out_share: float | None = None  # thresholds of its rule; None: as in the config
    scale_in_share: float | None = None
    pressure_share: float | None = None
    freeness_out: float | None = None
    freeness_in: float | None = None
    slot_minutes: int = 60  # control interval of a corrected plan, if instances boot in half of it
    is_closed: bool = False  # plans each hour when it begins, from the fleet of the replay at that time

    @property
    def programme(self) -> str | None:
        """Kind of its hourly plan; None without one."""
        return None if self.plan in ("recent", "compact", "own", "autoscaler", "standing") else self.plan

    @property
    def uses_capacity_share(self) -> bool:
        """Whether its plan or its reactive correction uses a share of the measured capacity."""
        return self.plan not in (None, "standing") or self.scaling == "reflex"


REPLAY_POLICIES = {
    "static": PolicySpec(
        "peak", "follow", "one fleet, sized for the peak of the history, never changed", colour="#767676"
    ),
    "siloed": PolicySpec(
        None,
        "reactive",
        "siloed reactive (SageServe 4): as reactive, the batch tier on separate instances",
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
        None,
        "hpa",
        "Kubernetes' HorizontalPodAutoscaler on KV memory, target 70 %",
        signal="memory",
        colour="#8C6D31",
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
    "reflex": PolicySpec(
        None,
        "reflex",
        "no plan and no forecast: the instances that arriving and waiting work needs",
        signal="both",
        order="late_last",
        colour="#5B8C5A",
    ),
    "dynamo": PolicySpec(
        "recent",
        "follow",
        "NVIDIA Dynamo's planner: every 3 minutes the instances that the last 3 needed",
        colour="#76B900",
    ),
    "compact": PolicySpec(
        "compact",
        "follow",
        "no plan: one pool per llm, prompts to the least waiting prompts, batch into the gaps",
        signal="both",
        order="late_last",
        routing="least_prefill",
        batch_pull="gaps",
        colour="#B2182B",
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
        "LT-U (SageServe 6.4): towards the plan when memory crosses a threshold",
        together=True,
        colour="#0072B2",
    ),
    "lt_ua": PolicySpec(
        "forecast",
        "lt_ua",
        "LT-UA (SageServe 6.4): as LT-U, beyond the plan when the forecast was wrong",
        together=True,
        colour="#009E73",
    ),
    "corrected": PolicySpec(
        "corrected",
        "reflex",
        "the corrected model on a quantile of the forecast; reactive scale-out when load exceeds the plan",
        signal="both",
        order="late_last",
        colour="#CC79A7",
    ),
    "corrected_closed": PolicySpec(
        "corrected",
        "reflex",
        "as corrected, each hour planned from the fleet running at that time",
        is_closed=True,
        signal="both",
        order="late_last",
        colour="#882255",
    ),
    "day_ahead": PolicySpec(
        "day_ahead",
        "reflex",
        "as corrected, all hours planned at midnight from a forecast of the whole day",
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
        "as corrected, dispatch and moves by freeness, higher levels first",
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
        "Cauchy* (SoCC '25): as cauchy, only instances that run both phases",
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
        "as corrected, planned every 15 minutes where boots are short; dispatch as Cauchy's",
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
        "the cheapest model routing and GPUs for a quality and a P95, for the peak of the history",
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
        "as corrected, on the true demand of each hour",
        signal="both",
        order="late_last",
        colour="#222222",
    ),
}


def planned_policies(policies: Mapping[str, PolicySpec] = REPLAY_POLICIES) -> list[str]:
    """Return the names of the policies with a plan of each hour."""
    return [name for name, rule in policies.items() if rule.programme is not None]
