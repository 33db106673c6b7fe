"""Check a Problem before it is solved: shapes, values, and limits that no plan can satisfy."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from fleetcast.models.plan.pool_capacity import LARGE
from fleetcast.models.plan.problem import PlanError, Problem

OPTION_FIELDS = ("instances_now", "spot", "min_option_instances", "max_option_instances", "boot_cold_s")


def find_contradictions(problem: Problem) -> list[str]:
    """Return one line for each contradiction of the problem; empty if there is none."""
    return _wrong_shapes(problem) or [
        *_bad_values(problem),
        *_bad_shares(problem),
        *_bad_prices(problem),
        *_bad_limits(problem),
    ]


def require_sound_problem(problem: Problem) -> None:
    """Raise PlanError with every contradiction of the problem, if there is any."""
    if wrong := find_contradictions(problem):
        raise PlanError("The plan contradicts itself:\n" + "\n".join(f"  {line}" for line in wrong))


def _wrong_shapes(p: Problem) -> list[str]:
    i, j, k, g = len(p.llms), len(p.regions), len(p.options), len(p.gpus)
    w = p.demand_tokens_per_s.shape[-1] if p.demand_tokens_per_s.ndim == 3 else 1
    wanted = {
        **{"demand_tokens_per_s": (i, j, max(w, 1)), "cap_gpus": (j, g), "uses": (i, k, g)},
        "size_shares": (LARGE, i, k),
        **dict.fromkeys(OPTION_FIELDS, (i, j, k)),
        **dict.fromkeys(("buffer_tokens_per_s", "min_instances", "max_instances"), (i, j)),
        **dict.fromkeys(("tokens_per_s", "usd_per_hour", "boot_spot_s"), (i, k)),
    }
    return [
        f"{name} has the shape {getattr(p, name).shape}, needed {shape}: services, regions, options, gpus, "
        "windows."
        for name, shape in wanted.items()
        if getattr(p, name).shape != shape
    ]


def _bad_values(p: Problem) -> Iterator[str]:
    for i, j in product(range(len(p.llms)), range(len(p.regions))):
        where = f"{p.services[i]} in {p.regions[j]}"
        for w, value in enumerate(p.demand_tokens_per_s[i, j]):
            if not (np.isfinite(value) and value >= 0):
                yield f"demand of {where}, window {w}: got {value} tokens/s, needed >= 0. Forecast it."
        if not (np.isfinite(p.buffer_tokens_per_s[i, j]) and p.buffer_tokens_per_s[i, j] >= 0):
            yield f"buffer of {where}: got {p.buffer_tokens_per_s[i, j]}, needed tokens/s >= 0."
        for k, option in enumerate(p.options):
            for what, now in (("instances", p.instances_now[i, j, k]), ("spot", p.spot[i, j, k])):
                if now < 0 or (now > 0 and not p.runs[i, k]):
                    yield f"{what} of {where} on {option}: got {now}, needed >= 0, or 0 if it cannot run."
            if not (np.isfinite(p.boot_cold_s[i, j, k]) and p.boot_cold_s[i, j, k] >= 0):
                got = f"cold boot of {where} on {option}: got {p.boot_cold_s[i, j, k]}"
                yield f"{got}, needed seconds >= 0."


def _bad_shares(p: Problem) -> Iterator[str]:
    if not 0 < p.epsilon <= 1:
        yield f"epsilon: got {p.epsilon}, needed 0 < epsilon <= 1. Correct [plan] epsilon."
    for name in ("spot_earning_share", "hysteresis_share", "export_share"):
        if not 0 <= getattr(p, name) <= 1:
            yield f"{name}: got {getattr(p, name)}, needed 0 to 1. Correct [plan] {name}."
    rises = (np.diff(p.size_shares, axis=0) >= 0).all() and (p.size_shares[0] > 0).all()
    if not (rises and (p.size_shares[-1] == 1).all()):
        yield f"size_shares: got {p.size_shares.tolist()}, needed above 0, rising to 1 with the instances."
    if not p.budget_usd >= 0:
        yield f"budget_usd: got {p.budget_usd}, needed USD >= 0, or inf for none."
    if not p.hours > 0:
        yield f"hours: got {p.hours}, needed more than 0."
    if not p.window_s > 0:
        yield f"window_s: got {p.window_s}, needed seconds > 0."


def _bad_prices(p: Problem) -> Iterator[str]:
    for i, llm in enumerate(p.services):
        if not p.runs[i].any():
            served = zip(p.options, p.tokens_per_s[i], strict=True)
            rates = ", ".join(f"{rate} on {option}" for option, rate in served)
            yield f"{llm} fits on no GPU type: it serves {rates} tokens/s. Give it a deployment that can."
    for i, k in zip(*np.nonzero(p.runs), strict=True):
        where = f"{p.services[i]} on {p.options[k]}"
        if not (np.isfinite(p.usd_per_hour[i, k]) and p.usd_per_hour[i, k] >= 0):
            got = f"price of {where}: got {p.usd_per_hour[i, k]} USD"
            yield f"{got}, needed >= 0. Correct it in data/catalogue/gpus.toml."
        if not (np.isfinite(p.boot_spot_s[i, k]) and p.boot_spot_s[i, k] >= 0):
            yield f"boot from spot of {where}: got {p.boot_spot_s[i, k]}, needed seconds >= 0."
        if p.gpus_per_instance[i, k] < 1:
            yield f"GPUs per instance of {where}: got {p.gpus_per_instance[i, k]}, needed >= 1."


def _bad_limits(p: Problem) -> Iterator[str]:
    for j, region in enumerate(p.regions):
        if not p.cap_gpus[j].any():
            types = ", ".join(p.gpus)
            yield f"{region} has no GPUs: its cap_gpus is 0 for {types}. Give it some, or leave it out."
        for g in np.nonzero(p.cap_gpus[j] < 0)[0]:
            yield f"cap of {region} on {p.gpus[g]}: got {p.cap_gpus[j, g]} GPUs, needed >= 0."
        for i, llm in enumerate(p.services):
            least, most = p.min_instances[i, j], p.max_instances[i, j]
            room = sum(
                min(cap // n for cap, n in zip(p.cap_gpus[j], p.uses[i, k], strict=True) if n > 0)
                for k in np.nonzero(p.runs[i] & (p.gpus_per_instance[i] > 0))[0]
            )
            if least < 0 or least > most:
                yield f"{llm} in {region}: min_instances {least} is not between 0 and max_instances {most}."
            elif least > room and p.runs[i].any():
                yield f"{llm} in {region}: min_instances {least} is above the {room} that fit in cap_gpus."
            for k, option in enumerate(p.options):
                least, most = p.min_option_instances[i, j, k], p.max_option_instances[i, j, k]
                if not 0 <= least <= most:
                    yield f"{llm} in {region} on {option}: minimum {least} is not between 0 and {most}."
        smallest = np.where(p.runs, p.gpus_per_instance, p.gpus_per_instance.max()).min(axis=1)
        if (p.min_instances[:, j] * smallest).sum() > p.cap_gpus[j].sum():
            yield (
                f"{region}: min_instances of all llms take {(p.min_instances[:, j] * smallest).sum()} GPUs, "
                f"cap_gpus has {p.cap_gpus[j].sum()}. Lower the minimum or raise the cap."
            )
