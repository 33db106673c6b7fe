"""Read saved answers of a Prometheus server's query_range: samples of known metrics, findings on the rest.

A folder NAME.metrics has such answers unchanged, plain or gzipped, in any number of files. They are read one
at a time into a table on disk, so that memory holds one answer and the names of the counters.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from fleetcast.assets.lake.warehouse import Connection
from fleetcast.assets.traces.file_content import open_unpacked
from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.world.engine_metrics import MetricsCatalogue

METRICS_SUFFIX = ".metrics"  # of the name of a folder of answers
ANSWER_PATTERNS = ("*.json", "*.json.gz")
SAMPLE_SCHEMA = pa.schema({"series": pa.int64(), "t": pa.float64(), "value": pa.float64()})
SHOWN_METRICS = 3
NO_NAME = ""
SampleColumns = tuple[Ints, Floats, Floats]  # number of the counter, instant, value


class CounterSeries(NamedTuple):
    """One counter of one process."""

    metric: str
    le: float | None  # upper bound of a histogram's bucket
    labels: Mapping[str, str]  # labels of the process: all but the name and the inner ones of metrics.toml


class QualityFinding(NamedTuple):
    """A row of the quality report."""

    aspect: str
    detail: str
    verdict: str = "note"
    rows: int | None = None
    share: float | None = None


class SavedAnswers(NamedTuple):
    """Content of the answers: the counters by their number in the table `samples`, and findings."""

    series: list[CounterSeries]
    findings: list[QualityFinding]


def is_metrics_folder(path: Path) -> bool:
    """Return whether a path is a folder of answers."""
    return path.is_dir() and path.suffix == METRICS_SUFFIX


def answer_files(folder: Path) -> list[Path]:
    """Return the saved answers of a folder, by name."""
    return sorted(
        path for pattern in ANSWER_PATTERNS for path in folder.glob(pattern) if not path.name.startswith(".")
    )


def read_answers(
    folder: Path, con: Connection, metrics: MetricsCatalogue, guard: IngestGuard
) -> SavedAnswers:
    """Fill the table samples(series, t, value) of `con`; IngestError if no answer is usable."""
    con.execute("create table samples (series bigint, t double, value double)")
    files = answer_files(folder)
    if not files:
        raise IngestError(
            f"{folder.name} holds no answer of a Prometheus server: *.json or *.json.gz. Run "
            f"fleetcast ingest --from URL --name {folder.stem}, or save answers of /api/v1/query_range there."
        )
    reader = _AnswerParser(metrics)
    total = 0
    for path in guard.progress.each(f"answers of {folder.name}", files):
        total += _read_answer_file(path, con, reader, guard, total)
    findings = list(reader.findings())
    if not reader.numbers:
        reason = findings[0].detail if findings else "they are empty"
        raise IngestError(
            f"{folder.name} has no sample of a metric that data/catalogue/metrics.toml knows: {reason}. "
            "Save the counters of the engine, as data/landing/README.md lists them, or delete the folder: "
            "what it has is not downloaded again."
        )
    series = [CounterSeries(metric, le, dict(labels)) for metric, le, labels, _ in reader.numbers]
    return SavedAnswers(series, findings)


def _read_answer_file(
    path: Path, con: Connection, reader: "_AnswerParser", guard: IngestGuard, before: int
) -> int:
    """Read a file into the table and return its unpacked size in bytes."""
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(2) == b"\x1f\x8b"
        with open_unpacked(path, "gzip" if is_packed else "none") as opened:
            text = opened.read(guard.most_bytes + 1)
        guard.passed(before + len(text))
        document = json.loads(text)
    except (OSError, EOFError, ValueError, RecursionError) as error:
        if isinstance(error, IngestError):
            raise
        reason = str(error).splitlines()[0][:80].rstrip(".") if path.stat().st_size else "it is empty"
        reader.refuse(path.name, f"is no JSON answer: {reason}")
        return 0
    batches = list(reader.samples(path.name, document))
    if batches:
        series, t, value = (np.concatenate(columns) for columns in zip(*batches, strict=True))
        con.register("batch", pa.table([series, t, value], schema=SAMPLE_SCHEMA))
        con.execute("insert into samples select * from batch")
        con.unregister("batch")
    return len(text)


class _AnswerParser:
    """Parses answers, numbers their counters, and records unusable parts."""

    def __init__(self, metrics: MetricsCatalogue) -> None:
        self.known = {*metrics.counters(), *metrics.buckets()}
        self.inner = {*metrics.inner_labels}
        self.numbers: dict[Any, int] = {}
        self.refused: list[str] = []
        self.others: Counter[str] = Counter()
        self.warnings: Counter[str] = Counter()
        self.not_finite = 0

    def refuse(self, name: str, why: str) -> None:
        """Record a file that is not usable."""
        self.refused.append(f"{name} {why}")

    def samples(self, name: str, document: Any) -> Iterator[SampleColumns]:
        """Yield the samples of each known counter of an answer, without values that are not finite.

        The counter's number, repeated; instants in seconds since 1970; values; (samples,) each.
        """
        documents = document if isinstance(document, list) else [document]
        for answer in documents:
            data = answer.get("data") if isinstance(answer, dict) else None
            if isinstance(answer, dict) and answer.get("status") == "error":
                self.refuse(name, f"is an error: {answer.get('errorType')}, {str(answer.get('error'))[:120]}")
            elif not isinstance(data, dict) or not isinstance(data.get("result"), list):
                self.refuse(name, "is no answer of /api/v1/query_range: it has no data.result")
            elif data.get("resultType") != "matrix":
                self.refuse(name, f"is a {data.get('resultType')}, needed the matrix of a query_range")
            else:
                if isinstance(texts := answer.get("warnings"), list):
                    self.warnings.update(str(text)[:120] for text in texts)
                for entry in data["result"]:
                    yield from self._entry(name, entry)

    def _entry(self, name: str, entry: Any) -> Iterator[SampleColumns]:
        """Yield the samples of one series as in `samples`; nothing for an unknown metric."""
        try:
            labels = {str(key): str(value) for key, value in entry["metric"].items()}
            metric = labels.pop("__name__", NO_NAME)
            if metric not in self.known:
                self.others[metric] += 1
                return
            t = np.array([sample[0] for sample in entry["values"]], np.float64)
            value = np.array([sample[1] for sample in entry["values"]]).astype(np.float64)
            le = labels.get("le")
            bound = None if le is None else float(le)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            self.refuse(name, "has a series that is not as Prometheus writes it")
            return
        is_finite = np.isfinite(value) & np.isfinite(t)
        self.not_finite += int(t.size - is_finite.sum())
        outer = tuple(sorted((k, v) for k, v in labels.items() if k not in self.inner))
        inner = tuple(sorted((k, v) for k, v in labels.items() if k in self.inner and k != "le"))
        key = (metric, bound, outer, inner)
        number = self.numbers.setdefault(key, len(self.numbers))
        yield np.full(int(is_finite.sum()), number), t[is_finite], value[is_finite]

    def findings(self) -> Iterator[QualityFinding]:
        """Yield findings on everything that was not usable."""
        for text in self.refused[:20]:
            yield QualityFinding("answers", text, "warn")
        if len(self.refused) > 20:
            yield QualityFinding("answers", f"and {len(self.refused) - 20:,} more cannot be used", "warn")
        for text, count in self.warnings.items():
            yield QualityFinding("answers", f"the server warned {count:,} times: {text}", "warn")
        if self.not_finite:
            yield QualityFinding("samples", f"{self.not_finite:,} are not finite numbers, left out")
        if nameless := self.others.pop(NO_NAME, 0):
            detail = "series have no name: rate() and increase() drop it; save the counter itself"
            yield QualityFinding("answers", f"{nameless:,} {detail}", "warn")
        if self.others:
            names = ", ".join(name for name, _ in self.others.most_common(SHOWN_METRICS))
            more = (
                f" and {len(self.others) - SHOWN_METRICS:,} more" if len(self.others) > SHOWN_METRICS else ""
            )
            yield QualityFinding(
                "other metrics",
                f"not in data/catalogue/metrics.toml, left out: {names}{more}",
                "ok",
                rows=sum(self.others.values()),
            )
