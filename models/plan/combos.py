"""Combos: prefill GPUs and decode GPUs that are rented together (Cauchy, section 3.3).

A combo is a paired pool: P prefill instances and D decode instances; or one instance that runs both phases.
`filter_combos` ranks combos by prices per phase, before any replay:

    rate = min(P / (R_in s_p), D / (R_out s_d), min(P, D) / (R_in s_x))        requests/s
    ce   = (R_in + R_out) * rate * 3,600 / USD per hour                        tokens per USD

Prefill of a token takes s_p seconds of an instance and decode s_d. Transfer of its KV cache takes s_x, the
seconds of the slower link. Each instance has one link, which carries one cache at a time, and a transfer
takes one link at both ends. Where senders wait for one receiver while another is free, links carry less; only
a replay shows how much.
An instance that runs both phases shares its time: rate = 1 / (R_in s_p + R_out s_d). The filter keeps of the
combos of the same GPUs the one with the highest rate; of the same two GPU types only the direction with the
higher ce; of these the `most` best.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from fleetcast.models.plan.phase_costs import MeanRequest, PhasePrice
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.pool_pairing import part_title, team_title


class ComboPart(NamedTuple):
    """Instances of one deployment in a combo."""

    price: PhasePrice
    instances: int

    @property
    def gpus(self) -> int:
        """GPUs of all its instances."""
        return self.instances * self.price.gpus

    @property
    def title(self) -> str:
        """Title like 2 x 4xh100-80gb: two instances of four GPUs each."""
        return part_title(self.price.gpu_title, self.price.gpus, self.instances)


class Combo(NamedTuple):
    """Prefill and decode instances; without a prefill part, one instance that runs both phases."""

    prefill: ComboPart | None
    decode: ComboPart

    @property
    def title(self) -> str:
        """Title of the paired pool."""
        return team_title(part.title for part in self.parts)

    @property
    def parts(self) -> tuple[ComboPart, ...]:
        """Its parts, prefill first."""
        return (self.decode,) if self.prefill is None else (self.prefill, self.decode)

    @property
    def uses(self) -> dict[str, int]:
        """GPUs by type."""
        gpus: dict[str, int] = {}
        for part in self.parts:
            gpus[part.price.gpu] = gpus.get(part.price.gpu, 0) + part.gpus
        return gpus

    @property
    def usd_per_hour(self) -> float:
        """Price of all its GPUs."""
        return sum(part.instances * part.price.usd_per_hour for part in self.parts)

    def per_s(self, load: MeanRequest) -> float:
        """Return the requests/s that fill the time of its GPUs or links, without waiting times."""
        decode_s = load.output_tokens * _token_s(self.decode.price, self.decode.price.usd_per_output_token)
        if self.prefill is None:
            prefill_s = load.input_tokens * _token_s(self.decode.price, self.decode.price.usd_per_input_token)
            return self.decode.instances / (prefill_s + decode_s)
        prefill_s = load.input_tokens * _token_s(self.prefill.price, self.prefill.price.usd_per_input_token)
        return min(
            self.prefill.instances / prefill_s, self.decode.instances / decode_s, self._transfers_per_s(load)
        )

    def _transfers_per_s(self, load: MeanRequest) -> float:
        """Return the KV caches/s that its links carry; inf without links."""
        link_s = load.input_tokens * max(part.price.link_token_s for part in self.parts)
        return min(part.instances for part in self.parts) / link_s if link_s else float("inf")

    def tokens_per_usd(self, load: MeanRequest, per_s: float | None = None) -> float:
        """Return the served tokens per USD at `per_s` requests/s, by default at the rate of `per_s()`."""
        rate = self.per_s(load) if per_s is None else per_s
        return (load.input_tokens + load.output_tokens) * rate * HOUR_S / self.usd_per_hour


def _token_s(price: PhasePrice, usd_per_token: float) -> float:
    """Return the seconds of an instance that a token takes."""
    return usd_per_token / price.usd_per_hour * HOUR_S


def colocated_combos(prices: Iterable[PhasePrice]) -> list[Combo]:
    """Return one combo per deployment: an instance that runs both phases."""
    return [Combo(None, ComboPart(price, 1)) for price in prices]


def disaggregated_combos(
    prices: Sequence[PhasePrice], prefill_instances: Iterable[int], decode_instances: Iterable[int]
) -> list[Combo]:
    """Return every ordered pair of deployments, with every pair of these numbers of instances."""
    return [
        Combo(ComboPart(prefill, p), ComboPart(decode, d))
        for prefill, decode, p, d in product(prices, prices, prefill_instances, decode_instances)
    ]


def filter_combos(combos: Iterable[Combo], load: MeanRequest, most: int) -> list[Combo]:
    """Return the `most` best combos by the filter of this file's docstring, best first."""
    by_uses: dict[tuple[tuple[str, int], ...], Combo] = {}
    for combo in combos:
        key = tuple(sorted(combo.uses.items()))
        if key not in by_uses or combo.per_s(load) > by_uses[key].per_s(load):
            by_uses[key] = combo
    ranked = sorted(by_uses.values(), key=lambda combo: -combo.tokens_per_usd(load))
    direction: dict[frozenset[str], tuple[str, ...]] = {}
    kept = []
    for combo in ranked:
        types = tuple(part.price.gpu for part in combo.parts)
        if direction.setdefault(frozenset(types), types) == types:
            kept.append(combo)
    return kept[:most]
