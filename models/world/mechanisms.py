"""Names of the replay's mechanisms (models/replay, one file each), and their codes in its kernel.

A config has the name in small letters: `order = "edf"` is QueueOrder.EDF. A new mechanism is a member here.
"""

from enum import IntEnum


class Batching(IntEnum):
    """How an instance mixes prompts and decode steps: batch.py."""

    WHOLE = 0
    CHUNKED = 1
    ORCA = 2


class Routing(IntEnum):
    """Rule that routes a request to an instance of a pool: route.py."""

    SHORTEST_QUEUE = 0
    ROUND_ROBIN = 1
    LEAST_KV = 2
    LEAST_WORK = 3
    FREENESS = 4
    INFAAS = 5
    LEAST_PREFILL = 6


class QueueOrder(IntEnum):
    """Order in which an instance admits queued requests: queue.py."""

    FCFS = 0
    EDF = 1
    PF = 2
    DPA = 3
    PRIORITY = 4
    PREEMPTIVE = 5
    LATE_LAST = DPA  # with tau_n_s = inf: a severely expired request never comes first again


class Opportunism(IntEnum):
    """Rule by which a prefill instance keeps a request and decodes it: opportunism.py."""

    OFF = 0
    IDLE = 1
    WEIGHTED = 2
    UNQUEUED = 3


class Scaling(IntEnum):
    """Rule by which a pool scales out and in: scaling_rules.py."""

    FOLLOW = 0
    REACTIVE = 1
    LT_U = 2
    LT_UA = 3
    CHIRON = 4
    HPA = 5
    REFLEX = 6
    FREENESS = 7


class BatchPull(IntEnum):
    """Rule by which a pool takes deferred requests of the batch tier: queue_manager.py."""

    MEMORY = 0
    GAPS = 1


class QueueDemand(IntEnum):
    """Queued requests that lower the freeness of an instance: freeness.py."""

    HEAD = 0
    ALL = 1


class Signal(IntEnum):
    """Signal that a pool is full: scaling_signal.py."""

    MEMORY = 0
    QUEUE = 1
    BOTH = 2


class GearTrigger(IntEnum):
    """Load by which a cascade chooses its gear: leg_chain.py."""

    RATE = 0
    LOAD = 1


class PoolSpread(IntEnum):
    """Rule that spreads requests over the pools of an llm in a region: spread.py."""

    IN_ORDER = 0
    ROUND_ROBIN = 1
    MOST_UNUSED = 2
    GOODPUT = 3
    WEIGHTS = 4


class Role(IntEnum):
    """Phases of a request that the instances of a pool run: both, prefill, or decode."""

    WHOLE = 0
    PREFILL = 1
    DECODE = 2


class Prefix(IntEnum):
    """Part of a prompt that is found in the prefix cache: prefix.py."""

    NONE = 0
    GIVEN = 1
    BLOCKS = 2


class Status(IntEnum):
    """State of an instance. GPU time is counted by state, except GONE."""

    GONE = 0
    SERVING = 1
    BOOTING = 2
    DRAINING = 3
    DONATED = 4


class Phase(IntEnum):
    """Work of an instance between two of its events."""

    IDLE = 0
    PREFILL = 1
    DECODE = 2


class Ending(IntEnum):
    """Outcome of a request."""

    QUEUED = 0
    FINISHED = 1
    REFUSED = 2
    SPARED = 3


def code_names(codes: type[IntEnum]) -> tuple[str, ...]:
    """Return the names of the members in configs and tables, with aliases of the same code."""
    return tuple(name.lower() for name in codes.__members__)


def code_of_name(codes: type[IntEnum], word: str) -> int:
    """Return the code of a name in a config; KeyError for an unknown name."""
    return int(codes[word.upper()])


BATCHINGS, ROUTINGS, ORDERS, SCALINGS = (
    code_names(Batching),
    code_names(Routing),
    code_names(QueueOrder),
    code_names(Scaling),
)
BATCH_PULLS = code_names(BatchPull)
OPPORTUNISMS, DEMANDS, SIGNALS, GEARS_BY = (
    code_names(Opportunism),
    code_names(QueueDemand),
    code_names(Signal),
    code_names(GearTrigger),
)
POOL_SPREADS, ROLES, PREFIXES = code_names(PoolSpread), code_names(Role), code_names(Prefix)
STATES = code_names(Status)[1:]  # states in which GPU time is counted
ENDINGS = code_names(Ending)

# Names without a code in the kernel.
LEVELS_BY = (
    "tier",
    "app",
    "uniform",
    "gaussian",
    "enterprise",
    "shares",
)  # models/traffic/priority_levels.py
STARTS = ("plan", "whole")  # assets/replays/policy_inputs.py
HAND_OVERS = ("bulk", "layers")  # kv_transfer.py
CAPACITIES = ("slo", "throughput")  # models/trials/capacity.py
