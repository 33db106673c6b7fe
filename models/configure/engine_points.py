"""The space of engine settings: every deployment of an llm that fits memory and that the package prices.

A point is what the replay models: bits of weights and cache, whole or split experts, GPU type, tensor- and
pipeline-parallel degree, data-parallel ranks that share the experts, prefill and decode together or apart,
requests in a batch, token budget of a step, prefix cache, router, and draft tokens of a step, up to as many
as [fleet] speculative_acceptance has rates. Data-parallel engines of a dense llm are instances. Backends
differ by the seconds of their kernels: the replay schedules the steps of each as vLLM does.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from typing import NamedTuple

from fleetcast.models.latency.aiconfigurator_package import PackageLacksData
from fleetcast.models.latency.aiconfigurator_profiles import aiconfigurator_profile, weight_bit_choices
from fleetcast.models.latency.latency_errors import scale_profile
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import VLLM, LatencyProfile
from fleetcast.models.world.config import RunConfig
from fleetcast.models.world.fleet_config import Deployment, rank_changes
from fleetcast.models.world.instance_kv_memory import kv_capacity_tokens, longest_request_tokens
from fleetcast.models.world.quality_floor import allowed_cache_bits, least_weight_bits
from fleetcast.models.world.toml_dataclasses import ConfigError

LEAST_CACHE_SHARE = 0.1  # of the usable memory: the formula of the cache leaves activations out
TENSOR_DEGREES, PIPELINE_DEGREES, MOST_GPUS = (1, 2, 4, 8), (1, 2), 8
DATA_PARALLEL_SIZES = (1, 2, 4, 8)  # of ranks that share the experts of a mixture, whole or split
BATCHES = (32, 64, 128, 256, 512)  # requests: vLLM's max_num_seqs
TOKEN_BUDGETS = (1024, 2048, 4096, 8192, 16384)  # vLLM's max_num_batched_tokens
# Routers that do not need to know the length of an answer; the last one with a prefix cache only.
ROUTERS = ("least_prefill", "least_kv", "round_robin")
PREFIX_ROUTER = "least_work"


class EngineVariant(NamedTuple):
    """How the llm is served: it changes the sizes and the kernels."""

    weight_bits: int
    kv_bits: int
    is_expert_parallel: bool
    backend: str = VLLM


class EngineShape(NamedTuple):
    """The GPUs of an instance."""

    gpu: str
    tensor_parallel: int
    pipeline_parallel: int = 1
    data_parallel_size: int = 1

    @property
    def rank_gpus(self) -> int:
        """GPUs of a data-parallel rank."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def gpus(self) -> int:
        """GPUs of an instance."""
        return self.rank_gpus * self.data_parallel_size


class EngineSettings(NamedTuple):
    """Settings that do not change the kernels."""

    max_batch: int  # requests
    token_budget: int  # tokens of a step
    prefix: str  # [fleet] prefix
    routing: str
    speculative_acceptance: tuple[float, ...] = ()  # of each draft token of a step
    speculative_draft_s: float = 0.0  # seconds of the drafter for each of them

    @property
    def is_async(self) -> bool:
        """Whether the engine composes a step while one runs: not with drafts, as vLLM's n-grams refuse it."""
        return not self.speculative_acceptance


class EnginePoint(NamedTuple):
    """A point of the space. With `decode`, `shape` only prefills, and `decode` only decodes."""

    variant: EngineVariant
    shape: EngineShape
    settings: EngineSettings
    decode: EngineShape | None = None

    @property
    def shapes(self) -> tuple[EngineShape, ...]:
        """The GPUs of an instance of each pool."""
        return (self.shape,) if self.decode is None else (self.shape, self.decode)

    @property
    def kind(self) -> "EnginePoint":
        """The point with default settings: points of a kind differ in other settings only."""
        own = self.settings
        acceptance, draft_s = own.speculative_acceptance, own.speculative_draft_s
        return self._replace(settings=default_settings(own.prefix, acceptance, draft_s))

    def pools(self, counts: Sequence[int]) -> list[tuple[Deployment, int]]:
        """Return the pools of a fleet with so many instances of each shape."""
        roles = ("whole",) if self.decode is None else ("prefill", "decode")
        return [
            (Deployment(role=role, **shape._asdict()), n)
            for shape, role, n in zip(self.shapes, roles, counts, strict=True)
        ]

    def usd_per_hour(self, catalogue: Catalogue, counts: Sequence[float]) -> float:
        """Return the price of a fleet with so many instances of each shape."""
        usd = (shape.gpus * catalogue.gpus[shape.gpu].usd_per_hour for shape in self.shapes)
        return sum(n * price for n, price in zip(counts, usd, strict=True))


class EngineMarket(NamedTuple):
    """What a search chooses from: a catalogue for each variant, with the profiles of its shapes."""

    llm: str
    catalogues: Mapping[EngineVariant, Catalogue]
    config: RunConfig  # its [fleet] and [replay] have what no point sets
    refused: Mapping[str, int]  # reasons why deployments are not in the space, and how many each

    def catalogue_of(self, point: EnginePoint) -> Catalogue:
        """Return the catalogue of a point's variant."""
        return self.catalogues[point.variant]

    def served_catalogue(self, point: EnginePoint, shape: EngineShape) -> Catalogue:
        """Return the same with the llm as an instance of this shape serves it."""
        return self.catalogues[point.variant].as_served(self.llm, rank_changes(shape.data_parallel_size))

    def config_of(self, point: EnginePoint) -> RunConfig:
        """Return the config of a point, without its deployments."""
        settings = point.settings
        fleet = dataclasses.replace(
            self.config.fleet,
            max_batch=settings.max_batch,
            max_prefill_tokens=settings.token_budget,
            prefix=settings.prefix,
            batching="chunked",
            async_scheduling=settings.is_async,
            speculative_acceptance=settings.speculative_acceptance,
            speculative_draft_s=settings.speculative_draft_s,
        )
        replay = dataclasses.replace(self.config.replay, routing=settings.routing, cascades={})
        return dataclasses.replace(self.config, fleet=fleet, replay=replay)

    def kv_tokens(self, point: EnginePoint, shape: EngineShape) -> int:
        """Return the KV tokens that fit on an instance, or on each of its ranks."""
        return kv_capacity_tokens(
            self.served_catalogue(point, shape),
            self.config.fleet,
            self.llm,
            shape.gpu,
            shape.rank_gpus,
            shape.pipeline_parallel,
        )

    def with_profiles(self, change: Callable[[Catalogue], tuple[LatencyProfile, ...]]) -> "EngineMarket":
        """Return the market with the profiles of each catalogue, and of its ranks, changed."""
        changed = {}
        for variant, catalogue in self.catalogues.items():
            ranks = {key: change(catalogue.as_served(*key)) for key in catalogue.changed_latency}
            changed[variant] = dataclasses.replace(
                catalogue, latency=change(catalogue), changed_latency=ranks
            )
        return self._replace(catalogues=changed)

    def with_slower_engines(self, prefill: float, decode: float) -> "EngineMarket":
        """Return the market with the seconds of the profiles times factors of prefill and decode."""
        return self.with_profiles(
            lambda catalogue: tuple(scale_profile(catalogue, p, prefill, decode) for p in catalogue.latency)
        )


def default_settings(prefix: str, acceptance: tuple[float, ...] = (), draft_s: float = 0.0) -> EngineSettings:
    """Return the settings with which kinds of points are compared first.

    acceptance: of each draft token of a step; draft_s: seconds of the drafter for one.
    """
    return EngineSettings(256, 8192, prefix, ROUTERS[0], acceptance, draft_s if acceptance else 0.0)


def price_engines(
    catalogue: Catalogue,
    llm: str,
    gpus: Sequence[str],
    floor: str | None,
    config: RunConfig,
    longest: int,
    backends: Sequence[str] = (VLLM,),
) -> EngineMarket:
    """Price every deployment of an llm that holds its weights and a request of `longest` tokens.

    `floor`: the least bits of a weight, a name in FLOOR_BITS; None: those of the llm. ConfigError where the
    llm has fewer bits than the floor, or nothing fits.
    """
    arch = catalogue.llms[llm]
    least = least_weight_bits(arch, floor)
    if arch.weight_bits < least:
        raise ConfigError(
            f"--quality-floor {floor}: {llm} has {arch.weight_bits} bits a weight, the floor is {least}. "
            "Lower the floor, or name an llm with more bits."
        )
    weights = [bits for bits in weight_bit_choices(arch, llm) if bits >= least]
    experts = (False, True) if arch.experts else (False,)
    catalogues, refused = dict[EngineVariant, Catalogue](), dict[str, int]()
    for variant in map(EngineVariant._make, product(weights, allowed_cache_bits(least), experts, backends)):
        served = dataclasses.replace(arch, **variant._asdict())
        alone = dataclasses.replace(
            catalogue.serving([llm]), llms={llm: served}, latency=(), changed_latency={}
        )
        sizes = DATA_PARALLEL_SIZES if arch.experts else (1,)
        profiles = {
            size: tuple(price_variant(alone, llm, gpus, size, config, longest, refused)) for size in sizes
        }
        if any(profiles.values()):
            ranks = {(llm, rank_changes(size)): found for size, found in profiles.items() if size > 1}
            catalogues[variant] = dataclasses.replace(alone, latency=profiles[1], changed_latency=ranks)
    if not catalogues:
        why = "; ".join(f"{reason} ({count})" for reason, count in list(refused.items())[:3])
        raise ConfigError(
            f"{llm} with a request of {longest:,} tokens fits nowhere on {', '.join(gpus)}: {why}. Name "
            "other --gpus, or lower --quality-floor."
        )
    return EngineMarket(llm, catalogues, config, refused)


def price_variant(
    alone: Catalogue,
    llm: str,
    gpus: Sequence[str],
    data_parallel_size: int,
    config: RunConfig,
    longest: int,
    refused: dict[str, int],
) -> Iterator[LatencyProfile]:
    """Yield the profile of each GPU type and tensor-parallel degree; count reasons in `refused`."""
    served = alone.as_served(llm, rank_changes(data_parallel_size))
    for gpu, degree in product(gpus, TENSOR_DEGREES):
        if alone.llms[llm].is_expert_parallel and degree * data_parallel_size == 1:
            continue  # the same as without
        shapes = [EngineShape(gpu, degree, stages, data_parallel_size) for stages in PIPELINE_DEGREES]
        reasons = [why_unfit(alone, llm, shape, config, longest) for shape in shapes]
        try:
            if None not in reasons:
                raise PackageLacksData(reasons[0] or "too small")
            yield aiconfigurator_profile(served, llm, gpu, degree)
        except PackageLacksData as error:
            reason = str(error)
            refused[reason] = refused.get(reason, 0) + 1


def why_unfit(
    catalogue: Catalogue, llm: str, shape: EngineShape, config: RunConfig, longest: int
) -> str | None:
    """Return why a shape cannot serve the llm, None if it can."""
    catalogue = catalogue.as_served(llm, rank_changes(shape.data_parallel_size))
    arch, gpu = catalogue.llms[llm], catalogue.gpus[shape.gpu]
    if shape.gpus > MOST_GPUS:
        return f"more than {MOST_GPUS} GPUs an instance"
    least, most = sorted((arch.kv_heads, shape.tensor_parallel))
    if arch.heads % shape.tensor_parallel or most % least:
        return f"{arch.heads} heads, {arch.kv_heads} of keys, do not spread over {shape.tensor_parallel} GPUs"
    if shape.tensor_parallel * shape.data_parallel_size > 1 and gpu.peer_gb_per_s is None:
        return f"{shape.gpu} has no peer_gb_per_s"
    if shape.pipeline_parallel > 1 and (gpu.link_gbit_per_s is None or arch.hidden is None):
        return f"{shape.gpu} has no link_gbit_per_s"
    with suppress(ConfigError):
        room = longest_request_tokens(
            catalogue, config.fleet, llm, shape.gpu, shape.rank_gpus, shape.pipeline_parallel
        )
        usable_bytes = config.fleet.kv_memory_share * shape.rank_gpus * gpu.memory_gib * 2**30
        if usable_bytes - arch.weight_bytes < LEAST_CACHE_SHARE * usable_bytes:
            return f"{shape.gpu} has too little memory for a cache"
        return None if room >= longest else f"{shape.gpu} has too little memory for the longest request"
    return f"{shape.gpu} has too little memory"


def list_shapes(market: EngineMarket, variant: EngineVariant, longest: int) -> list[EngineShape]:
    """Return the shapes of a variant that are priced and fit."""
    catalogue = market.catalogues[variant]
    shapes = (
        EngineShape(profile.gpu, profile.tensor_parallel, stages, size)
        for size in DATA_PARALLEL_SIZES
        for profile in catalogue.as_served(market.llm, rank_changes(size)).latency
        for stages in PIPELINE_DEGREES
    )
    return [s for s in shapes if why_unfit(catalogue, market.llm, s, market.config, longest) is None]


def list_kinds(
    market: EngineMarket, longest: int, prefixes: Sequence[str], way: str = "any"
) -> list[EnginePoint]:
    """Return the points with default settings: each variant on each shape, or pair of shapes.

    `way`: together, apart, or any. Caches are sent between equal numbers of pipeline stages only, over links.
    Data-parallel ranks neither send caches nor draft tokens.
    """
    kinds, fleet = [], market.config.fleet
    rates = fleet.speculative_acceptance
    for variant in market.catalogues:
        shapes = list_shapes(market, variant, longest)
        for prefix, drafts in product(prefixes, range(len(rates) + 1)):
            settings = default_settings(prefix, rates[:drafts], fleet.speculative_draft_s)
            if way != "apart":
                can_draft = [s for s in shapes if drafts == 0 or s.data_parallel_size == 1]
                kinds += [EnginePoint(variant, shape, settings) for shape in can_draft]
            if way != "together":
                linked = [s for s in shapes if has_link(market, s)]
                kinds += [
                    EnginePoint(variant, first, settings, then) for first, then in product(linked, linked)
                ]
    return kinds


def has_link(market: EngineMarket, shape: EngineShape) -> bool:
    """Return whether the shape can send caches, and has one stage and one rank."""
    gpus = next(iter(market.catalogues.values())).gpus
    has_one = shape.pipeline_parallel == shape.data_parallel_size == 1
    return gpus[shape.gpu].link_gbit_per_s is not None and has_one


def list_settings(kind: EnginePoint) -> Iterable[EnginePoint]:
    """Yield the points of a kind: all batches, budgets and routers."""
    prefix, drafts = kind.settings.prefix, len(kind.settings.speculative_acceptance)
    routers = (*ROUTERS, PREFIX_ROUTER) if prefix == "blocks" else ROUTERS
    for batch, budget, router in product(BATCHES, TOKEN_BUDGETS, routers):
        if budget > batch * (1 + drafts):
            settings = kind.settings._replace(max_batch=batch, token_budget=budget, routing=router)
            yield kind._replace(settings=settings)
