"""Queueing theory: closed forms that a right simulator meets."""


def mean_wait_s(arrivals_per_s: float, mean_service_s: float, mean_square_service_s2: float) -> float:
    """Mean wait of an M/G/1 queue, first come first served (Pollaczek and Khinchine)."""
    busy_share = arrivals_per_s * mean_service_s
    return arrivals_per_s * mean_square_service_s2 / (2 * (1 - busy_share))
