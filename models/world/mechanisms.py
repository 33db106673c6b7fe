"""The replay's mechanisms by name (models/replay, a file each), and the codes by which its kernel knows them.

A config says the name in small letters: `order = "edf"` is Order.EDF. A new mechanism is a member here.
"""

from enum import IntEnum


class Batching(IntEnum):
    """How an instance mixes prompts and decode steps: batch.py."""

    WHOLE = 0
    CHUNKED = 1
    ORCA = 2


class Routing(IntEnum):
    """Which instance of a pool a request goes to: route.py."""

    SHORTEST_QUEUE = 0
    ROUND_ROBIN = 1
    LEAST_KV = 2
    LEAST_WORK = 3
    FREENESS = 4
    INFAAS = 5


class QueueOrder(IntEnum):
    """In which order an instance admits what waits: queue.py."""

    FCFS = 0
    EDF = 1
    PF = 2
    DPA = 3
    PRIORITY = 4
    PREEMPTIVE = 5
    LATE_LAST = DPA  # with tau_n_s = inf: a severely expired request never comes first again


class Opportunism(IntEnum):
    """When an instance that prefills keeps a request and decodes it too: opportunism.py."""

    OFF = 0
    IDLE = 1
    WEIGHTED = 2


class Scaling(IntEnum):
    """When a pool grows and shrinks: scale.py."""

    FOLLOW = 0
    REACTIVE = 1
    LT_U = 2
    LT_UA = 3
    CHIRON = 4
    HPA = 5
    REFLEX = 6
    FREENESS = 7


class QueueDemand(IntEnum):
    """What of a queue counts against the freeness of an instance: freeness.py."""

    HEAD = 0
    ALL = 1


class Signal(IntEnum):
    """What tells that a pool is full: signal.py."""

    MEMORY = 0
    QUEUE = 1
    BOTH = 2


class GearTrigger(IntEnum):
    """By what a cascade chooses its gear: chain.py."""

    RATE = 0
    LOAD = 1


class PoolSpread(IntEnum):
    """How requests are spread between the pools of an llm in a region: spread.py."""

    IN_ORDER = 0
    ROUND_ROBIN = 1
    MOST_UNUSED = 2
    GOODPUT = 3
    WEIGHTS = 4


class Role(IntEnum):
    """What the instances of a pool do for a request: all of it, its prompt, or its answer."""

    WHOLE = 0
    PREFILL = 1
    DECODE = 2


class Prefix(IntEnum):
    """What of a prompt is found in a cache: prefix.py."""

    NONE = 0
    GIVEN = 1
    BLOCKS = 2


class Status(IntEnum):
    """The life of an instance. GPU time is counted by these, less GONE."""

    GONE = 0
    SERVING = 1
    BOOTING = 2
    DRAINING = 3
    DONATED = 4


class Phase(IntEnum):
    """What an instance is doing between two of its events."""

    IDLE = 0
    PREFILL = 1
    DECODE = 2


class Ending(IntEnum):
    """What has become of a request."""

    QUEUED = 0
    FINISHED = 1
    REFUSED = 2
    SPARED = 3


def code_names(codes: type[IntEnum]) -> tuple[str, ...]:
    """The names of the members as configs and tables write them; other names of the same code too."""
    return tuple(name.lower() for name in codes.__members__)


def code_of_name(codes: type[IntEnum], word: str) -> int:
    """The code of a name as configs write it. KeyError where there is none."""
    return int(codes[word.upper()])


BATCHINGS, ROUTINGS, ORDERS, SCALINGS = (
    code_names(Batching),
    code_names(Routing),
    code_names(QueueOrder),
    code_names(Scaling),
)
OPPORTUNISMS, DEMANDS, SIGNALS, GEARS_BY = (
    code_names(Opportunism),
    code_names(QueueDemand),
    code_names(Signal),
    code_names(GearTrigger),
)
POOL_SPREADS, ROLES, PREFIXES = code_names(PoolSpread), code_names(Role), code_names(Prefix)
STATES = code_names(Status)[1:]  # in which GPU time is counted
ENDINGS = code_names(Ending)

# What the kernel does not see.
HEADROOMS = ("all", "above")  # freeness.py
LEVELS_BY = (
    "tier",
    "app",
    "uniform",
    "gaussian",
    "enterprise",
    "shares",
)  # models/traffic/priority_levels.py
STARTS = ("plan", "whole")  # assets/replays/policy_inputs.py
HAND_OVERS = ("bulk", "layers")  # handover.py
CAPACITIES = ("slo", "throughput")  # capacity.py
