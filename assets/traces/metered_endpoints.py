"""What an endpoint was asked, as its counters tell: requests and tokens by reading, lengths by hour."""

from collections.abc import Mapping
from typing import NamedTuple

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.counter_readings import span_rows
from fleetcast.models.traffic.length_histograms import LengthHistogram

TOKEN_QUARTER_S = 900.0  # by which output tokens are kept: counted when a request ends, later than its input


class Place(NamedTuple):
    """Whose requests they are; None where no label tells."""

    engine: str
    model: str
    region: str | None
    tier: str | None
    app: str | None


class MeteredEndpoint(NamedTuple):
    """What an endpoint was asked. Intervals (t0, t1] are in order; seconds, quarters, hours since 1970."""

    place: Place
    t0: Floats
    t1: Floats
    requests: Ints  # (intervals,)
    input_tokens: Ints
    quarters: Ints  # (quarters of an hour,)
    output_tokens: Ints  # of each of them
    hours: Ints  # (hours,), the rows of all below
    cached_share: Floats
    delay_s: Floats  # from a request's arrival to when it was counted, in the mean
    input_shape: LengthHistogram
    output_shape: LengthHistogram
    histograms: Mapping[str, tuple[Floats, Floats]]  # measure -> bounds (buckets,), counts (hours, buckets)

    def rows(self, spans: Ints, span_s: float) -> Ints:
        """The row of each interval among the hours or quarters."""
        return span_rows(spans, self.t1, span_s)
