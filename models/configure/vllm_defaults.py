"""vLLM without settings on a GPU type: the fewest GPUs that hold the llm, the most bits, its defaults."""

from collections.abc import Iterable, Sequence

from fleetcast.models.configure.engine_points import EngineMarket, EnginePoint, EngineSettings
from fleetcast.models.latency.batch_extension import extend_profile
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.catalogue_entries import VLLM, LatencyProfile

LARGE_GIB = 70.0
# max_num_seqs and max_num_batched_tokens of vLLM's server, and its Service's way to instances.
LARGE_GPU = EngineSettings(1024, 8192, "none", "round_robin")  # from LARGE_GIB on, but A100
OTHER_GPU = EngineSettings(256, 2048, "none", "round_robin")


def default_points(
    market: EngineMarket, kinds: Iterable[EnginePoint], gpus: Sequence[str]
) -> list[EnginePoint]:
    """Return the point of vLLM's defaults on each GPU type that has one of `kinds` for it.

    Its prefix cache is on, as the kinds have it first.
    """
    most_bits = max(variant.weight_bits for variant in market.catalogues)
    plain = [
        kind
        for kind in kinds
        if kind.decode is None
        and kind.shape.pipeline_parallel == 1
        and kind.variant == (most_bits, 16, False, VLLM)
    ]
    points = []
    for gpu in gpus:
        of_gpu = [kind for kind in plain if kind.shape.gpu == gpu]
        if of_gpu:
            kind = min(of_gpu, key=lambda k: k.shape.gpus)
            is_large = market.catalogue_of(kind).gpus[gpu].memory_gib >= LARGE_GIB
            settings = LARGE_GPU if is_large and not gpu.startswith("a100") else OTHER_GPU
            points.append(kind._replace(settings=settings._replace(prefix=kind.settings.prefix)))
    return points


def with_default_batches(market: EngineMarket) -> EngineMarket:
    """Return the market with profiles up to the largest default batch, beyond the package's knots."""

    def extend(catalogue: Catalogue) -> tuple[LatencyProfile, ...]:
        return tuple(extend_profile(catalogue, p, LARGE_GPU.max_batch) for p in catalogue.latency)

    return market.with_profiles(extend)
