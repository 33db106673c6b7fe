"""What no plan can satisfy or no solver can read, named before anyone tries, each with its row."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from models.plan.problem import Problem


def contradictions(problem: Problem) -> list[str]:
    """Everything that is wrong with the question, one line each; empty when it is sound."""
    return _wrong_shapes(problem) or [
        *_bad_values(problem),
        *_bad_prices(problem),
        *_bad_limits(problem),
    ]


def _wrong_shapes(p: Problem) -> list[str]:
    i, j, k = len(p.llms), len(p.regions), len(p.gpus)
    w = p.demand_tokens_per_s.shape[-1] if p.demand_tokens_per_s.ndim == 3 else 1
    wanted = {
        **{"instances_now": (i, j, k), "demand_tokens_per_s": (i, j, max(w, 1)), "cap_gpus": (j, k)},
        **dict.fromkeys(("buffer_tokens_per_s", "min_instances", "max_instances"), (i, j)),
        **dict.fromkeys(("tokens_per_s", "usd_per_hour", "start_usd", "gpus_per_instance"), (i, k)),
    }
    return [
        f"{name} has the shape {getattr(p, name).shape}, needed {shape}: llms, regions, gpus, windows."
        for name, shape in wanted.items()
        if getattr(p, name).shape != shape
    ]


def _bad_values(p: Problem) -> Iterator[str]:
    for i, j in product(range(len(p.llms)), range(len(p.regions))):
        where = f"{p.llms[i]} in {p.regions[j]}"
        for w, value in enumerate(p.demand_tokens_per_s[i, j]):
            if not (np.isfinite(value) and value >= 0):
                yield f"demand of {where}, window {w}: got {value} tokens/s, needed >= 0. Forecast it."
        if not (np.isfinite(p.buffer_tokens_per_s[i, j]) and p.buffer_tokens_per_s[i, j] >= 0):
            yield f"buffer of {where}: got {p.buffer_tokens_per_s[i, j]}, needed tokens/s >= 0."
        for k in range(len(p.gpus)):
            now = p.instances_now[i, j, k]
            if now < 0 or (now > 0 and not p.runs[i, k]):
                yield f"instances of {where} on {p.gpus[k]}: got {now}, needed >= 0, or 0 if it cannot run."
    if not 0 < p.epsilon <= 1:
        yield f"epsilon: got {p.epsilon}, needed 0 < epsilon <= 1. Mend [plan] epsilon."


def _bad_prices(p: Problem) -> Iterator[str]:
    for i, llm in enumerate(p.llms):
        if not p.runs[i].any():
            rates = ", ".join(f"{rate} on {gpu}" for gpu, rate in zip(p.gpus, p.tokens_per_s[i], strict=True))
            yield f"{llm} fits on no GPU type: it serves {rates} tokens/s. Give it a deployment that can."
    for i, k in zip(*np.nonzero(p.runs), strict=True):
        where = f"{p.llms[i]} on {p.gpus[k]}"
        for what, value in (("price", p.usd_per_hour[i, k]), ("start cost", p.start_usd[i, k])):
            if not (np.isfinite(value) and value >= 0):
                yield f"{what} of {where}: got {value} USD, needed >= 0. Mend it in data/catalogue/gpus.toml."
        if p.gpus_per_instance[i, k] < 1:
            yield f"GPUs per instance of {where}: got {p.gpus_per_instance[i, k]}, needed >= 1."


def _bad_limits(p: Problem) -> Iterator[str]:
    for j, region in enumerate(p.regions):
        for k in np.nonzero(p.cap_gpus[j] < 0)[0]:
            yield f"cap of {region} on {p.gpus[k]}: got {p.cap_gpus[j, k]} GPUs, needed >= 0."
        for i, llm in enumerate(p.llms):
            least, most = p.min_instances[i, j], p.max_instances[i, j]
            room = sum(
                p.cap_gpus[j, k] // max(p.gpus_per_instance[i, k], 1) for k in np.nonzero(p.runs[i])[0]
            )
            if least < 0 or least > most:
                yield f"{llm} in {region}: min_instances {least} is not between 0 and max_instances {most}."
            elif least > room:
                yield f"{llm} in {region}: min_instances {least} is above the {room} that fit in cap_gpus."
        smallest = np.where(p.runs, p.gpus_per_instance, p.gpus_per_instance.max()).min(axis=1)
        if (p.min_instances[:, j] * smallest).sum() > p.cap_gpus[j].sum():
            yield (
                f"{region}: min_instances of all llms take {(p.min_instances[:, j] * smallest).sum()} GPUs, "
                f"cap_gpus has {p.cap_gpus[j].sum()}. Lower the minimum or raise the cap."
            )
