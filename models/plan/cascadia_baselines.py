"""What Cascadia is compared with: uniform GPUs, uniform parallelism, and CascadeServe: by load alone."""

import numpy as np

from fleetcast.models.plan.cascadia import Search, Tables, latency_tables, min_max
from fleetcast.models.plan.quality import Floats, Ints, Offer


def uniform_gpus(search: Search, quality: float) -> tuple[int, float]:
    """Point and latency where each llm has as many GPUs as the others."""
    llms = search.offer.shares.shape[1]
    latency_s = search.tables.latency_s[:, :, search.gpus // llms].max(axis=1)
    return _best_of(search.offer, latency_s, quality)


def uniform_parallelism(tables: Tables, gpus: int, degrees: Ints, quality: float) -> tuple[int, float]:
    """Point and latency where all replicas have as many GPUs; degrees (S,) of the shapes."""
    best = (-1, np.inf)
    for degree in np.unique(degrees):
        offer = tables.offer.only(shapes=degrees == degree)
        if np.unique(offer.llm).size < offer.shares.shape[1]:
            continue
        own = latency_tables(offer, tables.demand, gpus)
        latency_s = np.array([min_max(table, gpus)[1] for table in own.latency_s])
        found = _best_of(offer, latency_s, quality)
        best = found if found[1] < best[1] else best
    return best


def cascade_serve(tables: Tables, gpus: int, quality: float) -> tuple[int, float]:
    """Point and true latency of what CascadeServe plans: by load alone, all requests taken for mean ones."""
    found = [min_max(table, gpus) for table in tables_of_mean_lengths(tables, gpus).latency_s]
    point, _ = _best_of(tables.offer, np.array([latency_s for _, latency_s in found]), quality)
    return point, float(max(tables.latency_s[point, i, f] for i, f in enumerate(found[point][0])))


def tables_of_mean_lengths(tables: Tables, gpus: int) -> Tables:
    """The tables on up to so many GPUs as if all requests were mean ones: CascadeServe's."""
    offer = tables.offer
    everything = offer.mix[offer.shares.sum(axis=1).argmax()]
    alike = offer._replace(mix=np.broadcast_to(everything, offer.mix.shape))
    return latency_tables(alike, tables.demand, gpus)


def _best_of(offer: Offer, latency_s: Floats, quality: float) -> tuple[int, float]:
    """The point with the least latency among those with the quality; inf where there is none."""
    allowed_s = np.where(offer.quality >= quality, latency_s, np.inf)
    point = int(allowed_s.argmin())
    return point, float(allowed_s[point])
