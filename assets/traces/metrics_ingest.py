"""Ingest a folder of metrics as a trace: synthesize requests whose counters grow as the recorded ones.

Demand, forecasts and plans then read it as any other trace. Properties that counters do not have are sampled
independently, and the quality report lists them: the output of each input, the order within a reading,
clients, sessions.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.sql_files import read_sql
from fleetcast.assets.lake.warehouse import Connection, Lake, one_line_errors
from fleetcast.assets.traces.counter_reader import CounterReader
from fleetcast.assets.traces.ingest import (
    IngestReport,
    complete_move,
    is_ingested,
    mapping_bytes,
    require_landed_trace,
    require_single_source,
)
from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.assets.traces.metered_endpoints import MeteredEndpoint, Place
from fleetcast.assets.traces.metric_findings import list_metric_findings
from fleetcast.assets.traces.prometheus_answers import (
    QualityFinding,
    SavedAnswers,
    answer_files,
    read_answers,
)
from fleetcast.assets.traces.request_days import write_tiers
from fleetcast.assets.traces.staging import set_variables
from fleetcast.assets.traces.synthesize import SYNTHESIS_SEED, US_PER_S, synthesize_days
from fleetcast.assets.traces.trace_mapping import (
    TraceMapping,
    add_mapped_llms,
    read_ingest_bounds,
    read_mapping,
)
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.engine_metrics import METRICS_FILE, MetricsCatalogue, load_engine_metrics
from fleetcast.models.world.toml_dataclasses import TRACE_NAME

METRICS_FORMAT = "prometheus"
METRICS_CLOCK = "when counters were read, less the mean delay from arrival to count"
LABELLED_KEYS = ("region", "tier", "app")  # columns that a label can set


def land_metrics(
    path: Path, lake: Lake, catalogue: Catalogue, progress: Progress | None = None
) -> IngestReport:
    """Ingest one folder into the lake. With the same answers, mapping and catalogue again, change nothing.

    If its mapping names another trace than before, the folder moves there.

    Raises
    ------
    IngestError
        No answer is usable, there is no counter of requests, a counter grows faster than any engine's, or its
        trace has other files or is made.
    ConfigError
        The mapping file has a name that the catalogue does not have.
    """
    guard, metrics = IngestGuard(path, read_ingest_bounds(path), progress), load_engine_metrics()
    mapping = read_mapping(path, path.stem, catalogue)
    catalogue = add_mapped_llms(catalogue, mapping)
    TRACE_NAME.check(mapping.trace, f"{path.name}: its name is that of the trace")
    require_landed_trace(lake, mapping.trace, path)
    require_single_source(lake, mapping.trace, path)
    sha256 = metrics_folder_digest(path, mapping, catalogue)
    if is_ingested(lake, mapping.trace, path.name, sha256):
        return complete_move(lake, mapping.trace, path.name, is_new=False)
    with (
        one_line_errors(f"Ingesting {path.name}"),
        lake.scratch() as folder,
        lake.connect(folder / "samples.duckdb", query=read_sql("staging/mapping.sql").text) as con,
    ):
        answers = read_answers(path, con, metrics, guard)
        endpoints, findings = read_endpoints(path, con, answers, metrics, mapping)
        models = sorted({endpoint.place.model for endpoint in endpoints})
        llms = _llm_by_source_name(con, mapping, catalogue, models)
    days = synthesize_days(endpoints, llms, mapping, catalogue, path.name, guard)
    written = write_request_days(lake, path.name, mapping.trace, days)
    for stale in set(lake.days("requests", mapping.trace)) - set(written.days):
        lake.drop_day(mapping.trace, stale)
    write_tiers(lake, mapping.trace, catalogue)
    lake.write("engine_histograms", histogram_table(endpoints, llms), trace=mapping.trace)
    rows = [{"file": path.name, **finding._asdict()} for finding in findings]
    lake.write("metric_findings", pa.Table.from_pylist(rows, SCHEMAS["metric_findings"]), trace=mapping.trace)
    record = {
        **{"file": path.name, "format": METRICS_FORMAT, "sha256": sha256, "clock": METRICS_CLOCK},
        **dict.fromkeys(("rows_in", "rows_kept"), written.rows),
        **{"rows_quarantined": 0, "rows_out_of_order": 0, "largest_step_back_s": None},
        **{"first_at": written.first_at, "last_at": written.last_at},
    }
    table = pa.Table.from_pylist([record], SCHEMAS["ingests"])
    lake.write("ingests", table, file=path.name, trace=mapping.trace)
    return complete_move(lake, mapping.trace, path.name, is_new=True)


class WrittenDays(NamedTuple):
    """Days, number of rows, and first and last instant of requests that were written."""

    days: Sequence[date]
    rows: int
    first_at: datetime
    last_at: datetime


def write_request_days(
    lake: Lake, file: str, trace: str, request_days: Iterable[tuple[date, pa.Table]]
) -> WrittenDays:
    """Write requests day by day; a day is written in a thread while the next one is synthesized."""
    days, ends, rows = list[date](), list[int](), 0
    with ThreadPoolExecutor(1) as writer:
        writing = None
        for day, requests in request_days:
            instants = requests["arrived_at"].cast(pa.int64())
            ends += [instants[0].as_py(), instants[-1].as_py()]
            days.append(day)
            rows += requests.num_rows
            if writing is not None:
                writing.result()
            partition: dict[str, Any] = {"file": file, "trace": trace, "day": day}
            writing = writer.submit(lake.write, "requests", requests, **partition)
        if writing is not None:
            writing.result()
    return WrittenDays(days, rows, _instant(ends[0]), _instant(ends[-1]))


def _instant(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(us))


def metrics_folder_digest(path: Path, mapping: TraceMapping, catalogue: Catalogue) -> str:
    """Return the SHA-256 of all inputs of an ingest: answers, names of metrics, mapping, catalogue."""
    digest = hashlib.sha256(f"{SYNTHESIS_SEED}".encode() + METRICS_FILE.read_bytes())
    for file in answer_files(path):
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    digest.update(mapping_bytes(mapping, catalogue))
    return digest.hexdigest()


def read_endpoints(
    path: Path, con: Connection, answers: SavedAnswers, metrics: MetricsCatalogue, mapping: TraceMapping
) -> tuple[list[MeteredEndpoint], list[QualityFinding]]:
    """Read the load of each endpoint, and findings; IngestError if no endpoint has requests."""
    reader, found = CounterReader(con, answers.series, path.name), list[MeteredEndpoint]()
    places: dict[Place, list[int]] = defaultdict(list)
    for name, engine in metrics.engines.items():
        engine_metrics = {*engine.counters(), *engine.buckets()}
        for number, series in enumerate(answers.series):
            if series.metric in engine_metrics:
                labels = (series.labels.get(mapping.labels.get(key, "")) for key in LABELLED_KEYS)
                region, tier, app = (mapping.label_names.get(text, text) if text else None for text in labels)
                model = series.labels.get(engine.model_label, "unknown")
                places[Place(name, model, region, tier, app)].append(number)
    frontend_models = {place.model for place in places if metrics.engines[place.engine].is_frontend}
    for place, numbers in places.items():
        engine = metrics.engines[place.engine]
        if place.model in frontend_models and not engine.is_frontend:
            detail = (
                f"{place.engine} counts {place.model} behind a frontend: the frontend's counters are used"
            )
            reader.findings.append(QualityFinding("read twice", detail))
        elif endpoint := reader.read(place, engine, numbers):
            found.append(endpoint)
        else:
            reader.findings.append(
                QualityFinding(
                    "no requests", f"{place.engine} {place.model}: no counter of requests grew", "warn"
                )
            )
    if not found:
        wanted = " or ".join(engine.counted[0].requests for engine in metrics.engines.values())
        raise IngestError(
            f"{path.name} has no counter of requests and their tokens that grew. Needed is {wanted}, each "
            "with its tokens (data/catalogue/metrics.toml), over at least two readings. Save them too, or "
            "delete the folder."
        )
    return found, [*answers.findings, *reader.findings, *list_metric_findings(reader, found)]


def _llm_by_source_name(
    con: Connection, mapping: TraceMapping, catalogue: Catalogue, models: Sequence[str]
) -> dict[str, str]:
    """Return the catalogue's llm for each model name of the source, mapped as for any landed trace."""
    set_variables(con, {**mapping.variables(), "llms": list(catalogue.llms)})
    con.execute(read_sql("staging/mapping.sql").text)
    rows = con.execute(
        "select name, called(name, 0) from (select unnest($names::varchar[]) as name)", {"names": models}
    )
    return dict(rows.fetchall())


def histogram_table(found: Sequence[MeteredEndpoint], llms: dict[str, str]) -> pa.Table:
    """Return the engines' histograms by endpoint and hour, as in sql/tables/engine_histograms.sql."""
    parts = []
    for endpoint in found:
        starts = pa.array(endpoint.hours * int(HOUR_S) * US_PER_S).cast(
            SCHEMAS["engine_histograms"].field("hour_start").type
        )
        for measure, (bounds, counts) in endpoint.histograms.items():
            hour, bucket = np.nonzero(counts > 0)
            size = hour.size
            parts.append(
                pa.table(
                    {
                        "hour_start": starts.take(pa.array(hour)),
                        "engine": pa.repeat(endpoint.place.engine, size),
                        "source_llm": pa.repeat(endpoint.place.model, size),
                        "llm": pa.repeat(llms[endpoint.place.model], size),
                        **{
                            "served_region" if key == "region" else key: pa.array(
                                [getattr(endpoint.place, key)] * size, pa.string()
                            )
                            for key in LABELLED_KEYS
                        },
                        "measure": pa.repeat(measure, size),
                        "at_most": pa.array(bounds[bucket]),
                        "samples": pa.array(np.rint(counts[hour, bucket]).astype(np.int64)),
                    },
                    schema=SCHEMAS["engine_histograms"],
                )
            )
    return pa.concat_tables(parts) if parts else SCHEMAS["engine_histograms"].empty_table()
