"""Every line of the rent programmes, checked again in plain Python."""

from collections.abc import Iterator

import numpy as np

from fleetcast.models.aliases import Floats
from fleetcast.models.plan.rental import TOLERANCE, RentalOffer, RentalPlan


def broken_caps(offer: RentalOffer, rented: RentalPlan) -> Iterator[str]:
    """The caps, prices and signs that a choice breaks, in words."""
    counts = np.atleast_2d(rented.counts).sum(axis=0)
    if (rented.counts < 0).any() or (rented.shares < -TOLERANCE).any() or (rented.unserved_per_s < 0).any():
        yield "sign: a negative count, share or shortage"
    for g, gpu in enumerate(offer.gpus):
        used = sum(int(counts[n]) * int(offer.uses[n, g]) for n in range(counts.size))
        if used > offer.cap_gpus[g]:
            yield f"cap: {used} {gpu} of {offer.cap_gpus[g]}"
    usd = sum(int(counts[n]) * float(offer.usd_per_hour[n]) for n in range(counts.size))
    if abs(usd - rented.usd_per_hour) > TOLERANCE * max(usd, 1.0):
        yield f"cost: the GPUs cost {usd:.6g} USD an hour, it says {rented.usd_per_hour:.6g}"


def broken_shares(offer: RentalOffer, rates: Floats, goodput: Floats, rented: RentalPlan) -> Iterator[str]:
    """Buckets of which more or less than all is served or short, and options that serve what they cannot."""
    for b, rate in enumerate(rates):
        whole = float(rented.shares[b].sum()) + float(rented.unserved_per_s[b]) / rate
        if abs(whole - 1) > 2 * TOLERANCE:
            yield f"whole: {whole:.6g} of bucket {b + 1} is served or counted as short"
        for n in np.flatnonzero((rented.shares[b] > 0) & ~(goodput[b] > 0)):
            yield f"able: {offer.options[n]} serves bucket {b + 1}, which it cannot"


def combo_lp_violations(offer: RentalOffer, rates: Floats, goodput: Floats, rented: RentalPlan) -> list[str]:
    """Every line of the programme that a choice breaks; empty when it keeps them all."""
    broken = [*broken_caps(offer, rented), *broken_shares(offer, rates, goodput, rented)]
    for b, rate in enumerate(rates):
        served = sum(float(goodput[b, n]) * int(rented.counts[b, n]) for n in range(goodput.shape[1]))
        if served + rented.unserved_per_s[b] < rate * (1 - TOLERANCE):
            broken.append(f"serve: {served:.6g} + {rented.unserved_per_s[b]:.6g} of {rate:.6g} requests/s")
    return broken


def melange_violations(offer: RentalOffer, rates: Floats, tput: Floats, rented: RentalPlan) -> list[str]:
    """Every line of the programme that a choice breaks; empty when it keeps them all."""
    broken = [*broken_caps(offer, rented), *broken_shares(offer, rates, tput, rented)]
    for n, name in enumerate(offer.options):
        load = sum(rented.shares[b, n] * rates[b] / tput[b, n] for b in range(rates.size) if tput[b, n] > 0)
        if load > rented.counts[n] + TOLERANCE * max(1.0, load):
            broken.append(f"load: {name} has work for {load:.6g}, there are {rented.counts[n]}")
    return broken


def shares_violations(
    offer: RentalOffer, rates: Floats, goodput: Floats, rented: RentalPlan, eta: float = 1.0
) -> list[str]:
    """Every line of the programme that a choice breaks; empty when it keeps them all."""
    broken = [*broken_caps(offer, rented), *broken_shares(offer, rates, goodput, rented)]
    for n, name in enumerate(offer.options):
        load = sum(
            rented.shares[b, n] * rates[b] / goodput[b, n] for b in range(rates.size) if goodput[b, n] > 0
        )
        if load > eta * rented.counts[n] + TOLERANCE * max(1.0, load):
            broken.append(f"load: {name} has work for {load:.6g}, {eta:g} of {rented.counts[n]} count")
    return broken
