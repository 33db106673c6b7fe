"""What keeps a fleet from having one instance fewer: each cause is taken away in a replay with one fewer."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

from fleetcast.models.configure.engine_points import EngineMarket
from fleetcast.models.configure.fleet_trials import FleetScore
from fleetcast.models.configure.point_search import FleetTrials
from fleetcast.models.world.catalogue import Catalogue


class InstanceLimit(NamedTuple):
    """Why a role has no instance fewer."""

    role: str  # whole, prefill or decode
    instances: int
    steady: float  # instances that are busy all the time with the role's work
    causes: tuple[str, ...]  # names in CAUSES: without any one of them, one instance fewer attains


def halve_caches(catalogue: Catalogue) -> Catalogue:
    """Return the catalogue with caches of half the bits, so that twice the tokens fit."""
    llms = {name: dataclasses.replace(llm, kv_bits=llm.kv_bits // 2) for name, llm in catalogue.llms.items()}
    return dataclasses.replace(catalogue, llms=llms)


def drop_tpot_targets(catalogue: Catalogue) -> Catalogue:
    """Return the catalogue without TPOT targets."""
    tiers = {name: dataclasses.replace(tier, tpot_slo_s=None) for name, tier in catalogue.tiers.items()}
    return dataclasses.replace(catalogue, tiers=tiers)


def change_catalogues(market: EngineMarket, change: Callable[[Catalogue], Catalogue]) -> EngineMarket:
    """Return the market with each catalogue changed."""
    return market._replace(catalogues={key: change(value) for key, value in market.catalogues.items()})


CAUSES: Mapping[str, Callable[[EngineMarket], EngineMarket]] = {  # and what takes them away
    "prefill": lambda market: market.with_slower_engines(0.5, 1.0),
    "decode": lambda market: market.with_slower_engines(1.0, 0.5),
    "KV memory": lambda market: change_catalogues(market, halve_caches),
    "the TPOT target": lambda market: change_catalogues(market, drop_tpot_targets),
}
RELIEFS = {
    "prefill": "prompts take half the time",
    "decode": "decode steps take half the time",
    "KV memory": "twice the tokens fit into its cache",
    "the TPOT target": "there is no TPOT target",
}


def find_limits(trials: FleetTrials, best: FleetScore) -> list[InstanceLimit]:
    """Return why each role of the best fleet has no instance fewer, by replays on the trials' windows."""
    others = {name: FleetTrials(relax(trials.market), trials.windows) for name, relax in CAUSES.items()}
    limits = []
    for n, (pool, count) in enumerate(best.point.pools(best.counts)):
        fewer = (*best.counts[:n], count - 1, *best.counts[n + 1 :])
        causes = [
            name for name, other in others.items() if count > 1 and other.score(best.point, fewer).is_attained
        ]
        steady = trials.steady_instances(best.point)[n]
        limits.append(InstanceLimit(pool.role, count, steady, tuple(causes)))
    return limits


def describe_limit(limit: InstanceLimit) -> str:
    """Return what binds a role, in a sentence without its end."""
    role = "" if limit.role == "whole" else f"{limit.role} "
    of = f"steady work keeps {limit.steady:.2f} of {limit.instances} {role}instances busy"
    if limit.instances == 1:
        return f"whole instances bind: {of}"
    if not limit.causes:
        return f"bursts and whole instances bind: {of}, and no single relief lets one fewer attain"
    remedies = " or if ".join(RELIEFS[cause] for cause in limit.causes)
    verb = "binds" if len(limit.causes) == 1 else "bind"
    return f"{' and '.join(limit.causes)} {verb}: {of}; one fewer attains if {remedies}"
