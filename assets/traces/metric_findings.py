"""Findings about counters and histograms: the confidence in a trace that was synthesized from them."""

from collections.abc import Iterator, Sequence

from fleetcast.assets.traces.counter_reader import CounterReader
from fleetcast.assets.traces.metered_endpoints import MeteredEndpoint
from fleetcast.assets.traces.prometheus_answers import QualityFinding
from fleetcast.models.world.calendar import HOUR_S


def list_metric_findings(reader: CounterReader, found: Sequence[MeteredEndpoint]) -> Iterator[QualityFinding]:
    """Yield the findings of the reader, and the confidence in the synthesized requests."""
    requests = int(sum(endpoint.requests.sum() for endpoint in found))
    yield from list_counter_findings(reader, requests)
    yield from list_histogram_findings(reader, requests)
    yield QualityFinding(
        "confidence",
        "requests match the counters at every reading, tokens at least by the quarter of an hour; sampled "
        "independently: the output of each input, the order within a reading, clients, sessions",
        rows=requests,
        share=1.0,
    )


def list_counter_findings(reader: CounterReader, requests: int) -> Iterator[QualityFinding]:
    """Yield findings about counters that restart, appear late, have gaps or an older name."""
    if reader.restarts:
        yield QualityFinding(
            "restarts",
            f"{reader.restarts:,} counters of requests began again: requests that a process counted after "
            "its last reading are lost",
        )
    if reader.unknown_before:
        yield QualityFinding(
            "joined late",
            f"{reader.unknown_before:,} processes had counted before they were first read: left out",
        )
    if reader.gaps:
        hours = sum(last - first for first, last in reader.gaps) / HOUR_S
        yield QualityFinding(
            "gaps",
            f"{len(reader.gaps):,} gaps, {hours:,.1f} h in all, without a reading of an endpoint: the number "
            "of requests is known, their time is not; left out, so that these hours are unknown and not 0",
            "warn",
            reader.left_out,
            reader.left_out / max(requests + reader.left_out, 1),
        )
    for name in sorted(reader.renamed):
        yield QualityFinding("renamed", f"{name}: read while its newer name does not exist yet")


def list_histogram_findings(reader: CounterReader, requests: int) -> Iterator[QualityFinding]:
    """Yield findings about how precisely the buckets give the lengths of requests."""
    for measure, layouts in reader.histograms.layouts.items():
        if len(layouts) > 1:
            yield QualityFinding(
                "other buckets",
                f"{measure} come in {len(layouts)} layouts of buckets: each is read with its own bounds",
            )
    if reader.histograms.above_last:
        detail = "lengths above the last bucket: assumed to be at most twice its bound"
        rows = reader.histograms.above_last
        yield QualityFinding("above the last bucket", detail, rows=rows, share=rows / max(requests, 1))
    for measure, share in reader.histograms.widest.items():
        is_missing = share >= 1.0
        detail = (
            f"no histogram of {measure}: all requests of a reading get its mean"
            if is_missing
            else f"{measure}: the rank of a length is known to within {100 * share:.0f} %, its widest bucket"
        )
        yield QualityFinding("confidence", detail, "warn" if is_missing else "note", share=share)
