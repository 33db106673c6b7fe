"""The scaling policies that the replay judges: whose plan they follow and how they react."""

from collections.abc import Mapping
from typing import NamedTuple

BY_SIGNAL = ("reactive", "lt_u", "lt_ua")  # the scalings that look at a signal; hpa looks at memory always


class Policy(NamedTuple):
    """A row of the scoreboard: a plan (or none), the scaling rule, and how the instances are pooled."""

    # "peak", "forecast", "corrected", "day_ahead", "truth": a plan of each hour (assets/plans/inputs.py);
    # "recent": targets every few minutes from those before (assets/replays/drives.py); None: no plan
    plan: str | None
    scaling: str  # one of models.world.config.SCALINGS
    what: str
    pooling: str = "unified"  # one of models.replay.pools.POOLINGS
    signal: str | None = None  # what its rule looks at (signal.py); None: as the config says, likewise:
    order: str | None = None  # of an instance's queue (queue.py)
    routing: str | None = None  # to an instance (route.py)
    is_balanced: bool | None = None  # requests move between its instances (balance.py)
    start: str | None = None  # which instances serve at the start: those of the first plan, or all
    capacity_share: float | None = None  # of an instance's capacity that its plan counts on
    quantile: float | None = None  # of the hour's maximum that its plan covers
    slot_minutes: int = 60  # for which a corrected plan holds
    is_closed: bool = False  # each hour is planned when it begins, from the fleet that the replay has then

    @property
    def programme(self) -> str | None:
        """The kind of hourly plan that it follows; None: it has none."""
        return None if self.plan == "recent" else self.plan

    @property
    def slots(self) -> int:
        """How many plans an hour has."""
        return 60 // self.slot_minutes


POLICIES = {
    "static": Policy("peak", "follow", "one fleet, sized for the peak of the history, never changed"),
    "siloed": Policy(
        None, "reactive", "siloed reactive (SageServe 4): as reactive, niw on instances of its own", "siloed"
    ),
    "reactive": Policy(
        None, "reactive", "unified reactive (SageServe 4): out above 70 %, in below 30 % memory"
    ),
    "hpa": Policy(None, "hpa", "Kubernetes' HorizontalPodAutoscaler on KV memory, target 70 %"),
    "chiron": Policy(
        None,
        "chiron",
        "Chiron (arXiv 2501.08090; SageServe 7.1): back-pressure, theta 0.6",
        "chiron",
        signal="both",
        start="whole",
    ),
    "dynamo": Policy("recent", "follow", "NVIDIA Dynamo's planner: every 3 minutes what the last 3 needed"),
    "lt_i": Policy("forecast", "follow", "LT-I (SageServe 6.4): the hourly plan, at once"),
    "lt_u": Policy("forecast", "lt_u", "LT-U (SageServe 6.4): towards the plan when memory says so"),
    "lt_ua": Policy(
        "forecast", "lt_ua", "LT-UA (SageServe 6.4): LT-U, past the plan when the forecast failed"
    ),
    "corrected": Policy(
        "corrected",
        "reflex",
        "the corrected programme on a quantile of the forecast; past it while more comes than was planned",
        signal="both",
        order="late_last",
    ),
    "corrected_closed": Policy(
        "corrected",
        "reflex",
        "the same, each hour planned from the fleet that there is",
        is_closed=True,
        signal="both",
        order="late_last",
    ),
    "day_ahead": Policy(
        "day_ahead",
        "reflex",
        "the same, all hours planned at midnight from a forecast of the whole day",
        signal="both",
        order="late_last",
    ),
    "llumnix": Policy(
        None,
        "freeness",
        "multi-tier Llumnix: dispatch, moves and scaling by freeness, higher levels first",
        order="priority",
        routing="freeness",
        is_balanced=True,
    ),
    "corrected_llumnix": Policy(
        "corrected",
        "reflex",
        "the corrected plan with its reflex, dispatch and moves by freeness, higher levels first",
        signal="both",
        order="priority",
        routing="freeness",
        is_balanced=True,
    ),
    "clairvoyant": Policy(
        "truth", "reflex", "the same on the true demand of each hour", signal="both", order="late_last"
    ),
}


def planned(policies: Mapping[str, Policy] = POLICIES) -> list[str]:
    """Those of the policies that have a plan of each hour."""
    return [name for name, rule in policies.items() if rule.programme is not None]
