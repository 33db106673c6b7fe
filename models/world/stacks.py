"""Stacks of policies: how requests are routed, queued and moved between instances."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Stack(NamedTuple):
    """Mechanisms for a request on its way into a batch; a stack combines with any plan and any scaling rule.

    None, and figures that are not given: as in the config.
    """

    what: str
    routing: str | None = None  # to an instance (route.py)
    order: str | None = None  # of an instance's queue (queue.py)
    is_balanced: bool | None = None  # requests move between instances (balance.py)
    levels: Mapping[str, Any] = {}  # figures of [replay.levels]
    moves: Mapping[str, Any] = {}  # figures of [replay.moves]

    @property
    def headroom_share(self) -> float | None:
        """Share of an instance's memory that is kept free for level 0; None: as in the config."""
        return self.levels.get("headroom_share")


PLAIN_LEVELS = {"demand": "head", "promote_s": None, "least_ceiling_share": None, "headroom_share": 0.0}
PUBLISHED_MOVES = {
    **{"interval_s": 0.05, "gap_blocks": 0.3, "from_blocks": None},
    **{"is_guarded": False, "lowest_first": True},
}
GUARDED_MOVES = {
    **{"interval_s": 0.5, "gap_blocks": 0.3, "from_blocks": 3.0},
    **{"is_guarded": True, "lowest_first": False},
}
JSQ_STACK = Stack(
    "shortest queue by tokens, higher levels first", "shortest_queue", "priority", False, PLAIN_LEVELS
)
FREENESS_STACK = JSQ_STACK._replace(
    what="dispatch by freeness with headroom, no moves",
    routing="freeness",
    levels={**PLAIN_LEVELS, "headroom_share": 0.2},
)
REPLAY_STACKS = {
    "config": Stack("as in the config"),
    "round_robin": JSQ_STACK._replace(
        what="one instance after the other, higher levels first", routing="round_robin"
    ),
    "jsq": JSQ_STACK,
    "infaas": JSQ_STACK._replace(
        what="INFaaS before vLLM's queue: blind to levels", routing="infaas", order="fcfs"
    ),
    "preemptive": JSQ_STACK._replace(
        what="as jsq, and a request that does not fit preempts lower levels (vLLM)", order="preemptive"
    ),
    "holdback": JSQ_STACK._replace(
        what="as jsq, and lower levels need emptier instances (llm-d)",
        levels={**PLAIN_LEVELS, "least_ceiling_share": 0.5},
    ),
    "freeness": FREENESS_STACK,
    "llumnix": FREENESS_STACK._replace(
        what="multi-tier Llumnix as published: as freeness, moves every 50 ms from any instance, unguarded",
        is_balanced=True,
        moves=PUBLISHED_MOVES,
    ),
    "jsq_moves": JSQ_STACK._replace(
        what="fleetcast: as jsq, guarded moves from instances that are nearly full",
        is_balanced=True,
        moves=GUARDED_MOVES,
    ),
    "edf": JSQ_STACK._replace(
        what="shortest queue, earliest deadline first: the limit of many levels", order="edf"
    ),
}
