"""What counters met on their way to requests, as findings: how sure a trace that was drawn from them is."""

from collections.abc import Iterator, Sequence

from fleetcast.assets.traces.counter_reader import CounterReader
from fleetcast.assets.traces.metered_endpoints import MeteredEndpoint
from fleetcast.assets.traces.prometheus_answers import QualityFinding
from fleetcast.models.world.calendar import HOUR_S


def list_metric_findings(reader: CounterReader, found: Sequence[MeteredEndpoint]) -> Iterator[QualityFinding]:
    """What the reader met, and how sure the drawn requests are."""
    requests = int(sum(one.requests.sum() for one in found))
    yield from list_counter_findings(reader, requests)
    yield from list_histogram_findings(reader, requests)
    yield QualityFinding(
        "confidence",
        "requests are the counters' at every reading, tokens at least by the quarter of an hour; "
        "drawn independently: which output has which input, the order in a reading, clients, sessions",
        rows=requests,
        share=1.0,
    )


def list_counter_findings(reader: CounterReader, requests: int) -> Iterator[QualityFinding]:
    """What became of counters that begin again, come late, are not read for a while or have an older name."""
    if reader.restarts:
        yield QualityFinding(
            "restarts",
            f"{reader.restarts:,} counters of requests began again: what a process counted after its last "
            "reading is lost",
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
            f"{len(reader.gaps):,} stretches, {hours:,.1f} h in all, in which nobody read an endpoint: "
            "how many came is known, when is not; left out, so that they are unknown and not 0",
            "warn",
            reader.left_out,
            reader.left_out / max(requests + reader.left_out, 1),
        )
    for name in sorted(reader.renamed):
        yield QualityFinding("renamed", f"{name}: read where a newer name of it is not there yet")


def list_histogram_findings(reader: CounterReader, requests: int) -> Iterator[QualityFinding]:
    """How far buckets tell the lengths of requests."""
    for measure, layouts in reader.histograms.layouts.items():
        if len(layouts) > 1:
            yield QualityFinding(
                "other buckets",
                f"{measure} come in {len(layouts)} layouts of buckets: each is read by its own",
            )
    if reader.histograms.above_last:
        detail = "lengths beyond every bucket: taken to be at most twice the last bound"
        rows = reader.histograms.above_last
        yield QualityFinding("above the last bucket", detail, rows=rows, share=rows / max(requests, 1))
    for measure, share in reader.histograms.widest.items():
        lacks = share >= 1.0
        detail = (
            f"no histogram of {measure}: the requests of a reading have its mean"
            if lacks
            else f"{measure}: the rank of a length is known to within {100 * share:.0f} %, its widest bucket"
        )
        yield QualityFinding("confidence", detail, "warn" if lacks else "note", share=share)
