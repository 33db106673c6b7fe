"""Prometheus metrics of inference engines by their role, from data/catalogue/metrics.toml."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fleetcast.models.world.catalogue import CATALOGUE_DIR
from fleetcast.models.world.toml_dataclasses import build_dataclass, read_toml

METRICS_FILE = CATALOGUE_DIR / "metrics.toml"


@dataclass(frozen=True)
class EventCounters:
    """Two counters that grow at the same event of a request, and the histogram of its delay since arrival."""

    requests: str
    input_tokens: str
    late_by: str

    @property
    def delay(self) -> tuple[str, str]:
        """Names of the counters of seconds and of requests of `late_by`."""
        return f"{self.late_by}_sum", f"{self.late_by}_count"


@dataclass(frozen=True)
class PrefixCacheCounters:
    """Counters of prompt tokens found in the prefix cache, and of tokens looked up."""

    hits: str
    of: str


@dataclass(frozen=True)
class EngineMetrics:
    """The metrics of one engine; lists run from the newest name to the oldest."""

    model_label: str
    counted: tuple[EventCounters, ...]
    input_lengths: tuple[str, ...]
    output_lengths: tuple[str, ...]
    ttft: tuple[str, ...]
    tpot: tuple[str, ...]
    cache: tuple[PrefixCacheCounters, ...]
    known: str
    source: str
    e2e: tuple[str, ...] = field(default=())
    output_tokens: tuple[str, ...] = field(default=())  # counters, for versions without the histogram
    waiting: tuple[str, ...] = field(default=())  # gauges of requests in the queue
    is_frontend: bool = False

    @property
    def histograms(self) -> Mapping[str, tuple[str, ...]]:
        """Names of histograms by quantity, with the quantities' names of the table engine_histograms."""
        return {
            "input_tokens": self.input_lengths,
            "output_tokens": self.output_lengths,
            "ttft_s": self.ttft,
            "tpot_s": self.tpot,
            "e2e_s": self.e2e,
        }

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of counters of output tokens, the preferred ones first."""
        return (*(f"{name}_sum" for name in self.output_lengths), *self.output_tokens)

    def counters(self) -> Iterator[str]:
        """Yield the name of every counter that is read step by step."""
        for row in self.counted:
            yield from (row.requests, row.input_tokens, *row.delay)
        for cached in self.cache:
            yield from (cached.hits, cached.of)
        yield from self.outputs

    def buckets(self) -> Iterator[str]:
        """Yield the name of every counter of a histogram's buckets."""
        for names in self.histograms.values():
            yield from (f"{name}_bucket" for name in names)


@dataclass(frozen=True)
class MetricsCatalogue:
    """The engines by name, and the labels that do not identify the exporting instance."""

    engines: Mapping[str, EngineMetrics]
    inner_labels: tuple[str, ...]

    def counters(self) -> list[str]:
        """Return the names of the counters of all engines, each once."""
        return list(dict.fromkeys(name for engine in self.engines.values() for name in engine.counters()))

    def buckets(self) -> list[str]:
        """Return the names of the buckets of all engines, each once."""
        return list(dict.fromkeys(name for engine in self.engines.values() for name in engine.buckets()))


def load_engine_metrics() -> MetricsCatalogue:
    """Read data/catalogue/metrics.toml; ConfigError names the error in it."""
    metrics: MetricsCatalogue = build_dataclass(MetricsCatalogue, read_toml(METRICS_FILE), METRICS_FILE.name)
    return metrics
