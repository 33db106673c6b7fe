"""A landed folder of metrics becomes a trace: requests drawn so that counters would grow as they grew.

Demand, forecasts and plans then read it as any other trace. What counters do not tell is drawn independently
and said in the quality report: which output follows which input, the order in a reading, clients, sessions.
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
from fleetcast.assets.traces.bounds import Guard, IngestError
from fleetcast.assets.traces.drawn import SEED, US, drawn_days
from fleetcast.assets.traces.endpoints import Metered, Place
from fleetcast.assets.traces.ingest import (
    IngestReport,
    is_known,
    report,
    require_alone,
    require_not_made,
    said_of,
)
from fleetcast.assets.traces.mapping import TraceMapping, read_bounds, read_mapping
from fleetcast.assets.traces.reader import Reader
from fleetcast.assets.traces.samples import Answers, Finding, answer_files, read_answers
from fleetcast.assets.traces.sureness import summed_up
from fleetcast.assets.traces.traces import write_tiers
from fleetcast.models.world.calendar import HOUR_S
from fleetcast.models.world.catalogue import Catalogue
from fleetcast.models.world.engine_metrics import FILE, Metrics, load_metrics
from fleetcast.models.world.reading import TRACE_NAME

FORMAT = "prometheus"
CLOCK = "when counters were read, less the mean delay from arrival to count"
LABELLED = ("region", "tier", "app")  # what a label may tell


def land_metrics(
    path: Path, lake: Lake, catalogue: Catalogue, progress: Progress | None = None
) -> IngestReport:
    """Bring one folder into the lake; the same answers, mapping and catalogue a second time change nothing.

    Raises
    ------
    IngestError
        No answer can be used; no counter of requests is there; its trace has other files or is made.
    ConfigError
        The mapping file beside it names what the catalogue does not have.
    """
    guard, metrics = Guard(path, read_bounds(path), progress), load_metrics()
    mapping = read_mapping(path, path.stem, catalogue)
    TRACE_NAME.check(mapping.trace, f"{path.name}: its name is that of the trace")
    require_not_made(lake, mapping.trace, path)
    require_alone(lake, mapping.trace, path)
    sha256 = fingerprint(path, mapping, catalogue)
    if is_known(lake, mapping.trace, path.name, sha256):
        return report(lake, mapping.trace, path.name, is_new=False)
    with (
        one_line_errors(f"Ingesting {path.name}"),
        lake.scratch() as folder,
        lake.connect(folder / "samples.duckdb", query=read_sql("staging/mapping.sql").text) as con,
    ):
        answers = read_answers(path, con, metrics, guard)
        found, findings = measured(path, con, answers, metrics, mapping)
        llms = _llms(con, mapping, catalogue, sorted({one.place.model for one in found}))
    days = drawn_days(found, llms, mapping, catalogue, path.name, guard)
    written = write_days(lake, path.name, mapping.trace, days)
    for stale in set(lake.days("requests", mapping.trace)) - set(written.days):
        lake.drop_day(mapping.trace, stale)
    write_tiers(lake, mapping.trace, catalogue)
    lake.write("engine_histograms", histograms(found, llms), trace=mapping.trace)
    said = [{"file": path.name, **finding._asdict()} for finding in findings]
    lake.write("metric_findings", pa.Table.from_pylist(said, SCHEMAS["metric_findings"]), trace=mapping.trace)
    record = {
        **{"file": path.name, "format": FORMAT, "sha256": sha256, "clock": CLOCK},
        **dict.fromkeys(("rows_in", "rows_kept"), written.rows),
        **{"rows_quarantined": 0, "rows_out_of_order": 0, "largest_step_back_s": None},
        **{"first_at": written.first_at, "last_at": written.last_at},
    }
    table = pa.Table.from_pylist([record], SCHEMAS["ingests"])
    lake.write("ingests", table, file=path.name, trace=mapping.trace)
    return report(lake, mapping.trace, path.name, is_new=True)


class Written(NamedTuple):
    """The requests that were written."""

    days: Sequence[date]
    rows: int
    first_at: datetime
    last_at: datetime


def write_days(lake: Lake, file: str, trace: str, drawn: Iterable[tuple[date, pa.Table]]) -> Written:
    """Write requests day by day: a day is written while the next one is drawn."""
    days, ends, rows = list[date](), list[int](), 0
    with ThreadPoolExecutor(1) as beside:
        writing = None
        for day, requests in drawn:
            instants = requests["arrived_at"].cast(pa.int64())
            ends += [instants[0].as_py(), instants[-1].as_py()]
            days.append(day)
            rows += requests.num_rows
            if writing is not None:
                writing.result()
            place: dict[str, Any] = {"file": file, "trace": trace, "day": day}
            writing = beside.submit(lake.write, "requests", requests, **place)
        if writing is not None:
            writing.result()
    return Written(days, rows, _instant(ends[0]), _instant(ends[-1]))


def _instant(us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(us))


def fingerprint(path: Path, mapping: TraceMapping, catalogue: Catalogue) -> str:
    """SHA-256 of all that the result depends on: answers, names of metrics, mapping, catalogue."""
    digest = hashlib.sha256(f"{SEED}".encode() + FILE.read_bytes())
    for file in answer_files(path):
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    digest.update(said_of(mapping, catalogue))
    return digest.hexdigest()


def measured(
    path: Path, con: Connection, answers: Answers, metrics: Metrics, mapping: TraceMapping
) -> tuple[list[Metered], list[Finding]]:
    """What each endpoint was asked, and findings; IngestError where none was asked anything."""
    reader, found = Reader(con, answers.series), list[Metered]()
    places: dict[Place, list[int]] = defaultdict(list)
    for name, engine in metrics.engines.items():
        own = {*engine.counters(), *engine.buckets()}
        for number, series in enumerate(answers.series):
            if series.metric in own:
                said = (series.labels.get(mapping.labels.get(key, "")) for key in LABELLED)
                region, tier, app = (mapping.label_names.get(text, text) if text else None for text in said)
                model = series.labels.get(engine.model_label, "unknown")
                places[Place(name, model, region, tier, app)].append(number)
    before = {place.model for place in places if metrics.engines[place.engine].is_frontend}
    for place, numbers in places.items():
        engine = metrics.engines[place.engine]
        if place.model in before and not engine.is_frontend:
            detail = f"{place.engine} counts {place.model} behind a frontend, whose counters are taken"
            reader.findings.append(Finding("read twice", detail))
        elif one := reader.read(place, engine, numbers):
            found.append(one)
        else:
            reader.findings.append(
                Finding("no requests", f"{place.engine} {place.model}: no counter of requests grew", "warn")
            )
    if not found:
        wanted = " or ".join(engine.counted[0].requests for engine in metrics.engines.values())
        raise IngestError(
            f"{path.name} has no counter of requests and their tokens that grew. Needed is {wanted}, each "
            "with its tokens (data/catalogue/metrics.toml), over two readings at least."
        )
    return found, [*answers.findings, *reader.findings, *summed_up(reader, found)]


def _llms(
    con: Connection, mapping: TraceMapping, catalogue: Catalogue, models: Sequence[str]
) -> dict[str, str]:
    """The catalogue's llm for each name of the source, as for any landed trace."""
    for name, value in {**mapping.variables(), "llms": list(catalogue.llms)}.items():
        con.execute(f"set variable {name} = $value", {"value": value})
    con.execute(read_sql("staging/mapping.sql").text)
    rows = con.execute(
        "select name, called(name, 0) from (select unnest($names::varchar[]) as name)", {"names": models}
    )
    return dict(rows.fetchall())


def histograms(found: Sequence[Metered], llms: dict[str, str]) -> pa.Table:
    """The histograms as the engines counted, by endpoint and hour: sql/tables/engine_histograms.sql."""
    parts = []
    for one in found:
        starts = pa.array(one.hours * int(HOUR_S) * US).cast(
            SCHEMAS["engine_histograms"].field("hour_start").type
        )
        for measure, (bounds, counts) in one.histograms.items():
            hour, bucket = np.nonzero(counts > 0)
            size = hour.size
            parts.append(
                pa.table(
                    {
                        "hour_start": starts.take(pa.array(hour)),
                        "engine": pa.repeat(one.place.engine, size),
                        "source_llm": pa.repeat(one.place.model, size),
                        "llm": pa.repeat(llms[one.place.model], size),
                        **{key: pa.array([getattr(one.place, key)] * size, pa.string()) for key in LABELLED},
                        "measure": pa.repeat(measure, size),
                        "at_most": pa.array(bounds[bucket]),
                        "samples": pa.array(np.rint(counts[hour, bucket]).astype(np.int64)),
                    },
                    schema=SCHEMAS["engine_histograms"],
                )
            )
    return pa.concat_tables(parts) if parts else SCHEMAS["engine_histograms"].empty_table()
