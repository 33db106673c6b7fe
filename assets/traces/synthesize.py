"""Synthesize requests from the load of endpoints: exact requests per reading and tokens per quarter hour."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.assets.traces.metered_endpoints import TOKEN_QUARTER_S, MeteredEndpoint
from fleetcast.assets.traces.request_days import canonical_requests
from fleetcast.assets.traces.trace_mapping import TraceMapping, mapping_file
from fleetcast.models.aliases import Ints
from fleetcast.models.traffic.counter_readings import group_neighbours
from fleetcast.models.traffic.length_histograms import LengthHistogram, draw_lengths
from fleetcast.models.traffic.trace_columns import DayColumns
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue import Catalogue

SYNTHESIS_SEED = 1  # raise it when the sampling changes, so that folders land again
SECONDS_PER_DAY, US_PER_S = 86_400, 1_000_000
FIELDS_PER_REQUEST = 8  # rows of SynthesizedRequests.rest


class SynthesizedRequests(NamedTuple):
    """Arrivals and fields of synthesized requests.

    The rows of `rest` are the codes of region, llm, tier and app; input, output and cached tokens; endpoint.
    """

    arrived_us: Ints  # (requests,), us since 1970
    rest: NDArray[np.int32]  # (FIELDS_PER_REQUEST, requests)


def _no_requests() -> SynthesizedRequests:
    return SynthesizedRequests(np.zeros(0, np.int64), np.zeros((FIELDS_PER_REQUEST, 0), np.int32))


def synthesize_days(
    found: Sequence[MeteredEndpoint],
    llms: Mapping[str, str],
    mapping: TraceMapping,
    catalogue: Catalogue,
    file: str,
    guard: IngestGuard,
) -> Iterator[tuple[date, pa.Table]]:
    """Yield each day that has requests, as the table `requests` in order of arrival.

    IngestError if a label is no region or tier of the catalogue.
    """
    regions, tiers = list(catalogue.regions), list(catalogue.tiers)
    for metered in found:
        place = metered.place
        for key, name, known in (("region", place.region, regions), ("tier", place.tier, tiers)):
            if name is not None and name not in known:
                raise IngestError(
                    f"{file}: the label {mapping.labels[key]}={name} is no {key} of the catalogue "
                    f"({', '.join(known)}). "
                    f'Write label_names = {{ "{name}" = "..." }} into {mapping_file(Path(file)).name}, or '
                    "labels = {} to distribute requests by shares."
                )
    apps = sorted({metered.place.app for metered in found if metered.place.app} | set(mapping.shares["app"]))
    names = {"region": regions, "llm": list(catalogue.llms), "tier": tiers, "app": apps}
    first = int(min(metered.t0[0] for metered in found) // SECONDS_PER_DAY)
    last = int(max(metered.t1[-1] for metered in found) // SECONDS_PER_DAY)
    left = _no_requests()
    with guard.progress.bar(f"requests of {file}", last - first + 2) as done:
        # A day is complete after the next one: requests counted there may have arrived before its midnight.
        for count, number in enumerate(range(first, last + 2), start=1):
            guard.passed(0)
            counted = (
                _synthesize_endpoint(metered, n, number, llms, mapping, names)
                for n, metered in enumerate(found)
            )
            parts = [left, *counted]
            arrived_us, rest = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
            order = np.argsort(arrived_us)
            cut = np.searchsorted(arrived_us, number * SECONDS_PER_DAY * US_PER_S, sorter=order)
            left = SynthesizedRequests(arrived_us[order[cut:]], rest[:, order[cut:]])
            rows = SynthesizedRequests(arrived_us[order[:cut]], rest[:, order[:cut]])
            done(count)
            if cut:
                day = date(1970, 1, 1) + timedelta(days=number - 1)
                yield day, _canonical_table(rows, day, file, catalogue, names["app"], found, mapping)


def _synthesize_endpoint(
    metered: MeteredEndpoint,
    endpoint: int,
    number: int,
    llms: Mapping[str, str],
    mapping: TraceMapping,
    names: Mapping[str, list[str]],
) -> SynthesizedRequests:
    """Sample the requests of an endpoint that were counted on day `number` since 1970, in no order.

    `llms` maps the source's models to the catalogue's llms, `names` has the names of each code.
    """
    day_end_s = (number + 1) * SECONDS_PER_DAY
    intervals = np.flatnonzero((metered.t1 > day_end_s - SECONDS_PER_DAY) & (metered.t1 <= day_end_s))
    n = metered.requests[intervals]
    if not n.sum():
        return _no_requests()
    rng = np.random.default_rng([SYNTHESIS_SEED, zlib.crc32(repr(metered.place).encode()), number])
    row = np.repeat(intervals, n)
    hour, quarter = metered.rows(metered.hours, HOUR_S), metered.rows(metered.quarters, TOKEN_QUARTER_S)
    length_s = metered.t1 - metered.t0
    arrived = metered.t0[row] + rng.random(row.size) * length_s[row] - metered.delay_s[hour[row]]
    arrived = np.maximum(arrived, metered.t0[0])  # the delay may reach before the first reading
    hour_of, quarter_of = hour[intervals], quarter[intervals]
    inputs = _draw_token_lengths(
        rng, metered.input_shape, n, metered.input_tokens[intervals], hour_of, quarter_of
    )
    quarters, first, at = np.unique(quarter_of, return_index=True, return_inverse=True)
    per_quarter = np.bincount(at, n, quarters.size).astype(np.int64)
    outputs = _draw_token_lengths(
        rng, metered.output_shape, per_quarter, metered.output_tokens[quarters], hour_of[first], quarters
    )
    cached_sum = np.cumsum(inputs * metered.cached_share[hour[row]])
    cached = np.minimum(np.diff(np.floor(cached_sum + 0.5), prepend=0.0).astype(np.int64), inputs)
    place = metered.place
    named = {"region": place.region, "llm": llms[place.model], "tier": place.tier, "app": place.app}
    codes = [
        _assign_codes(rng, name, mapping.shares[key], names[key], row.size) for key, name in named.items()
    ]
    rest = np.array([*codes, inputs, outputs, cached, np.full(row.size, endpoint)], np.int32)
    return SynthesizedRequests(np.floor(arrived * US_PER_S).astype(np.int64), rest)


def _draw_token_lengths(
    rng: np.random.Generator, shape: LengthHistogram, requests: Ints, tokens: Ints, hour: Ints, quarter: Ints
) -> Ints:
    """Sample the lengths of the requests of consecutive intervals; neighbours in a quarter hour are joined.

    shape : lengths in tokens by hour; counts (hours, cells)
    requests, tokens : number of requests and sum of their lengths in each interval, shape (intervals,)
    hour, quarter : row of each interval in the hours of `shape`, and its quarter of an hour, (intervals,)

    Returns the length of each request in tokens, interval after interval, shape (requests.sum(),).
    """
    group, total = group_neighbours(requests, tokens, quarter)
    n = np.bincount(group, requests, total.size).astype(np.int64)
    first = np.searchsorted(group, np.arange(total.size))
    rows = np.minimum(hour[np.minimum(first, hour.size - 1)], len(shape.counts) - 1)
    return draw_lengths(rng, LengthHistogram(shape.bounds, shape.counts[rows]), n, np.maximum(total, n))


def _assign_codes(
    rng: np.random.Generator, name: str | None, shares: Any, known: list[str], size: int
) -> Ints:
    """Return the code in `known` of `name`, else codes sampled by the mapping's shares; shape (size,)."""
    if name is not None:
        return np.full(size, known.index(name), np.int64)
    codes = np.array([known.index(name) for name in shares], np.int64)
    if codes.size == 1:
        return np.full(size, codes[0])
    below = np.cumsum(list(shares.values()))[:-1]
    return codes[np.searchsorted(below, rng.random(size), side="right")]


def _canonical_table(
    rows: SynthesizedRequests,
    day: date,
    file: str,
    catalogue: Catalogue,
    apps: Sequence[str],
    found: Sequence[MeteredEndpoint],
    mapping: TraceMapping,
) -> pa.Table:
    """Return requests in order of arrival as the table `requests`."""
    midnight_us = (day - date(1970, 1, 1)).days * SECONDS_PER_DAY * US_PER_S
    columns = DayColumns(rows.arrived_us - midnight_us, *rows.rest[:6])
    table = canonical_requests(columns, day, file, catalogue, apps)
    models = pa.array([metered.place.model for metered in found])
    has_label = np.array([metered.place.tier is not None for metered in found])[rows.rest[7]]
    source = "mapping" if mapping.is_tier_mapped else "dealt"
    extra = {
        "source_llm": pa.DictionaryArray.from_arrays(rows.rest[7], models).cast(pa.string()),
        "tier_source": pa.array(np.where(has_label, "given", source)),
        "tier_confidence": pa.array(np.where(has_label | mapping.is_tier_mapped, 1.0, 0.0)),
    }
    if any(metered.cached_share.any() for metered in found):
        extra["cached_tokens"] = pa.array(rows.rest[6], pa.int32())
    for name, column in extra.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table
