"""The load of an endpoint from its counters: requests and tokens by reading, lengths by hour."""

from collections.abc import Mapping
from typing import NamedTuple

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.counter_readings import span_rows
from fleetcast.models.traffic.length_histograms import LengthHistogram

# Output tokens are summed over this span: they are counted when a request ends, later than its input tokens.
TOKEN_QUARTER_S = 900.0


class Place(NamedTuple):
    """Engine, model, region, tier and app of an endpoint; None without a label for it.

    Its repr is the seed of the endpoint's synthesized requests: do not rename it or its fields.
    """

    engine: str
    model: str
    region: str | None
    tier: str | None
    app: str | None


class MeteredEndpoint(NamedTuple):
    """Load of an endpoint. Intervals (t0, t1] between readings are in order."""

    place: Place
    t0: Floats  # (intervals,), s since 1970
    t1: Floats  # (intervals,), s since 1970
    requests: Ints  # (intervals,)
    input_tokens: Ints  # (intervals,)
    quarters: Ints  # (quarters,), quarters of an hour since 1970
    output_tokens: Ints  # (quarters,)
    hours: Ints  # (hours,), hours since 1970
    cached_share: Floats  # (hours,), share of input tokens found in the prefix cache
    delay_s: Floats  # (hours,), mean time from a request's arrival to its count
    input_shape: LengthHistogram  # tokens; counts (hours, cells)
    output_shape: LengthHistogram  # tokens; counts (hours, cells)
    histograms: Mapping[str, tuple[Floats, Floats]]  # measure -> bounds (buckets,), counts (hours, buckets)

    def rows(self, spans: Ints, span_s: float) -> Ints:
        """Return the row (intervals,) of each interval in `spans`: hours or quarters since 1970, (spans,)."""
        return span_rows(spans, self.t1, span_s)
