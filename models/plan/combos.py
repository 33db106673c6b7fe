"""Combos: GPUs for prefill and GPUs for decode that are rented together (Cauchy, section 3.3).

A combo is a team: so many instances that prefill, so many that decode; or one instance that does both. Which
are worth trying is told from prices by phase, before any replay:

    rate = min(P / (R_in s_p), D / (R_out s_d), min(P, D) / (R_in s_x))        P instances prefill, D decode
    ce   = (R_in + R_out) * rate * 3,600 / USD per hour

A token is prefilled in s_p seconds and decoded in s_d; its cache crosses in s_x, those of the slower link.
Each instance has one link, which carries one cache at a time, and a cache takes one at both ends. Where
senders wait for one receiver while another is free, links carry less: the replay tells how much.
An instance that does both shares its time: rate = 1 / (R_in s_p + R_out s_d). Of combos of the same GPUs the
one with the highest rate stays; of two GPU types the direction with the higher ce; then the `most` best.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from fleetcast.models.plan.phase_costs import MeanRequest, PhasePrice
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.pool_pairing import part_title, team_title


class ComboPart(NamedTuple):
    """Like instances of a team."""

    price: PhasePrice
    instances: int

    @property
    def gpus(self) -> int:
        """Of all its instances."""
        return self.instances * self.price.gpus

    @property
    def title(self) -> str:
        """Like 2 x 4xh100-80gb: two instances on four GPUs each."""
        return part_title(self.price.gpu, self.price.gpus, self.instances)


class Combo(NamedTuple):
    """A team; without a part that prefills it is one instance that does both."""

    prefill: ComboPart | None
    decode: ComboPart

    @property
    def title(self) -> str:
        """How it is called."""
        return team_title(part.title for part in self.parts)

    @property
    def parts(self) -> tuple[ComboPart, ...]:
        """All of its parts."""
        return (self.decode,) if self.prefill is None else (self.prefill, self.decode)

    @property
    def uses(self) -> dict[str, int]:
        """GPUs by type."""
        held: dict[str, int] = {}
        for part in self.parts:
            held[part.price.gpu] = held.get(part.price.gpu, 0) + part.gpus
        return held

    @property
    def usd_per_hour(self) -> float:
        """Of all its GPUs."""
        return sum(part.instances * part.price.usd_per_hour for part in self.parts)

    def per_s(self, load: MeanRequest) -> float:
        """Requests/s that its GPUs, and the links between them, have time for, whoever waits."""
        decode_s = load.output_tokens * _seconds(self.decode.price, self.decode.price.usd_per_output_token)
        if self.prefill is None:
            prefill_s = load.input_tokens * _seconds(self.decode.price, self.decode.price.usd_per_input_token)
            return self.decode.instances / (prefill_s + decode_s)
        prefill_s = load.input_tokens * _seconds(self.prefill.price, self.prefill.price.usd_per_input_token)
        return min(
            self.prefill.instances / prefill_s, self.decode.instances / decode_s, self._sent_per_s(load)
        )

    def _sent_per_s(self, load: MeanRequest) -> float:
        """Caches/s that its links carry."""
        link_s = load.input_tokens * max(part.price.link_token_s for part in self.parts)
        return min(part.instances for part in self.parts) / link_s if link_s else float("inf")

    def tokens_per_usd(self, load: MeanRequest, per_s: float | None = None) -> float:
        """Tokens of the requests that it serves, per USD; of `per_s` requests/s where that is known."""
        rate = self.per_s(load) if per_s is None else per_s
        return (load.input_tokens + load.output_tokens) * rate * HOUR_S / self.usd_per_hour


def _seconds(price: PhasePrice, usd_per_token: float) -> float:
    """Seconds of an instance that a token takes."""
    return usd_per_token / price.usd_per_hour * HOUR_S


def colocated_combos(prices: Iterable[PhasePrice]) -> list[Combo]:
    """An instance of each deployment that does both phases."""
    return [Combo(None, ComboPart(price, 1)) for price in prices]


def disaggregated_combos(
    prices: Sequence[PhasePrice], prefill_instances: Iterable[int], decode_instances: Iterable[int]
) -> list[Combo]:
    """Every ordered pair of deployments, with every pair of these numbers of instances."""
    return [
        Combo(ComboPart(one, p), ComboPart(other, d))
        for one, other, p, d in product(prices, prices, prefill_instances, decode_instances)
    ]


def filter_combos(combos: Iterable[Combo], load: MeanRequest, most: int) -> list[Combo]:
    """The filter of this file's docstring, best first."""
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
