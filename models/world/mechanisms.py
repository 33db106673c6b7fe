"""The replay's mechanisms by name (models/replay, a file each); codes in its kernel are positions here."""

BATCHINGS = ("whole", "chunked", "orca")  # batch.py
ROUTINGS = ("shortest_queue", "round_robin", "least_kv", "least_work", "freeness", "infaas")  # route.py
ORDERS = (
    "fcfs",
    "edf",
    "pf",
    "dpa",
    "late_last",  # DPA that never turns round
    "priority",
    "preemptive",
)  # queue.py
OPPORTUNISMS = ("off", "idle", "weighted")  # opportunism.py
SCALINGS = ("follow", "reactive", "lt_u", "lt_ua", "chiron", "hpa", "reflex", "freeness")  # scale.py
DEMANDS = ("head", "all")  # freeness.py, also:
HEADROOMS = ("all", "above")
LEVELS_BY = ("tier", "app", "uniform", "gaussian", "enterprise", "shares")  # models/traffic/priorities.py
SIGNALS = ("memory", "queue", "both")  # signal.py
GEARS_BY = ("rate", "load")  # chain.py
SPREADS = ("in_order", "round_robin", "most_unused", "goodput", "weights")  # spread.py
ROLES = ("whole", "prefill", "decode")  # pools.py
PREFIXES = ("none", "given", "blocks")  # prefix.py
STARTS = ("plan", "whole")  # assets/replays/drives.py
HAND_OVERS = ("bulk", "layers")  # handover.py
CAPACITIES = ("slo", "throughput")  # capacity.py
