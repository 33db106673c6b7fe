"""Requests drawn from what endpoints were asked: each reading has its requests, each quarter its tokens."""

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

SYNTHESIS_SEED = 1  # raise it when the drawing changes, so that folders land again
SECONDS_PER_DAY, US_PER_S = 86_400, 1_000_000
FIELDS_PER_REQUEST = 8  # of what is drawn of a request beside its instant


class SynthesizedRequests(NamedTuple):
    """Requests that were drawn."""

    arrived_us: Ints  # (requests,) since 1970
    rest: NDArray[
        np.int32
    ]  # (ROWS, requests): region, llm, tier, app, input, output, cached tokens, endpoint


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
    """The canonical requests of each day that has any, in order of arrival; request ids as of made days."""
    regions, tiers = list(catalogue.regions), list(catalogue.tiers)
    for one in found:
        for key, name, known in (("region", one.place.region, regions), ("tier", one.place.tier, tiers)):
            if name is not None and name not in known:
                raise IngestError(
                    f"{file}: the label {mapping.labels[key]}={name} is no {key} of the catalogue "
                    f"({', '.join(known)}). "
                    f'Write label_names = {{ "{name}" = "..." }} into {mapping_file(Path(file)).name}, or '
                    "labels = {} to deal them out by shares."
                )
    apps = sorted({one.place.app for one in found if one.place.app} | set(mapping.shares["app"]))
    names = {"region": regions, "llm": list(catalogue.llms), "tier": tiers, "app": apps}
    first = int(min(one.t0[0] for one in found) // SECONDS_PER_DAY)
    last = int(max(one.t1[-1] for one in found) // SECONDS_PER_DAY)
    left = _no_requests()
    with guard.progress.bar(f"requests of {file}", last - first + 2) as done:
        for count, number in enumerate(
            range(first, last + 2), start=1
        ):  # some of a day came before its midnight
            guard.passed(0)
            parts = [
                left,
                *(_synthesize_endpoint(one, k, number, llms, mapping, names) for k, one in enumerate(found)),
            ]
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
    one: MeteredEndpoint,
    endpoint: int,
    number: int,
    llms: Mapping[str, str],
    mapping: TraceMapping,
    names: Mapping[str, list[str]],
) -> SynthesizedRequests:
    """The requests of an endpoint that were counted on a day, in no order."""
    own = np.flatnonzero((one.t1 > number * SECONDS_PER_DAY) & (one.t1 <= (number + 1) * SECONDS_PER_DAY))
    n = one.requests[own]
    if not n.sum():
        return _no_requests()
    rng = np.random.default_rng([SYNTHESIS_SEED, zlib.crc32(repr(one.place).encode()), number])
    row = np.repeat(own, n)
    hour, quarter = one.rows(one.hours, HOUR_S), one.rows(one.quarters, TOKEN_QUARTER_S)
    arrived = one.t0[row] + rng.random(row.size) * (one.t1 - one.t0)[row] - one.delay_s[hour[row]]
    arrived = np.maximum(arrived, one.t0[0])  # whatever came before the first reading
    inputs = _draw_token_lengths(rng, one.input_shape, n, one.input_tokens[own], hour[own], quarter[own])
    quarters, first, at = np.unique(quarter[own], return_index=True, return_inverse=True)
    per_quarter = np.bincount(at, n, quarters.size).astype(np.int64)
    outputs = _draw_token_lengths(
        rng, one.output_shape, per_quarter, one.output_tokens[quarters], hour[own][first], quarters
    )
    whole = np.cumsum(inputs * one.cached_share[hour[row]])
    cached = np.minimum(np.diff(np.floor(whole + 0.5), prepend=0.0).astype(np.int64), inputs)
    place = {
        "region": one.place.region,
        "llm": llms[one.place.model],
        "tier": one.place.tier,
        "app": one.place.app,
    }
    codes = [
        _assign_codes(rng, name, mapping.shares[key], names[key], row.size) for key, name in place.items()
    ]
    rest = np.array([*codes, inputs, outputs, cached, np.full(row.size, endpoint)], np.int32)
    return SynthesizedRequests(np.floor(arrived * US_PER_S).astype(np.int64), rest)


def _draw_token_lengths(
    rng: np.random.Generator,
    shape: LengthHistogram,
    requests: Ints,
    tokens: Ints,
    hour: Ints,
    quarter: Ints,
) -> Ints:
    """Lengths of the requests of consecutive intervals, neighbours of a quarter of an hour drawn together."""
    group, total = group_neighbours(requests, tokens, quarter)
    n = np.bincount(group, requests, total.size).astype(np.int64)
    first = np.searchsorted(group, np.arange(total.size))
    rows = np.minimum(hour[np.minimum(first, hour.size - 1)], len(shape.counts) - 1)
    return draw_lengths(rng, LengthHistogram(shape.bounds, shape.counts[rows]), n, np.maximum(total, n))


def _assign_codes(
    rng: np.random.Generator, name: str | None, shares: Any, known: list[str], size: int
) -> Ints:
    """The code of a name for every request, or codes by the shares of the mapping."""
    if name is not None:
        return np.full(size, known.index(name), np.int64)
    codes = np.array([known.index(one) for one in shares], np.int64)
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
    """Requests in order of arrival as canonical ones."""
    midnight_us = (day - date(1970, 1, 1)).days * SECONDS_PER_DAY * US_PER_S
    columns = DayColumns(rows.arrived_us - midnight_us, *rows.rest[:6])
    table = canonical_requests(columns, day, file, catalogue, apps)
    models = pa.array([one.place.model for one in found])
    is_said = np.array([one.place.tier is not None for one in found])[rows.rest[7]]
    unsaid = "mapping" if mapping.is_tier_mapped else "dealt"
    extra = {
        "source_llm": pa.DictionaryArray.from_arrays(rows.rest[7], models).cast(pa.string()),
        "tier_source": pa.array(np.where(is_said, "given", unsaid)),
        "tier_confidence": pa.array(np.where(is_said | mapping.is_tier_mapped, 1.0, 0.0)),
    }
    if any(one.cached_share.any() for one in found):
        extra["cached_tokens"] = pa.array(rows.rest[6], pa.int32())
    for name, column in extra.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table
