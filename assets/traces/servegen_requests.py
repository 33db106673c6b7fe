"""Requests sampled from the members of a ServeGen archive, written for sql/sources/servegen.sql."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fleetcast.assets.traces.ingest_bounds import IngestError, IngestGuard
from fleetcast.models.traffic.client_rates import (
    GAMMA,
    WEIBULL,
    RateSlots,
    TokenLadder,
    find_windows,
    make_ladder,
    sample_arrivals,
    sample_counts,
    sample_ladder,
    slot_blocks,
    sum_items,
)

MOST_SAMPLED_REQUESTS = 200_000_000
MOST_ITEMS = 10_000  # images, audios or videos of a request
LEAST_SHAPE = 0.01
ITEMS = ("image", "audio", "video")
KINDS = {
    "input_tokens": "input_tokens", "text_tokens": "input_tokens", "output_tokens": "output_tokens",
    **{f"{item}_{what}": f"{item}_{what}" for item in ITEMS for what in ("count", "tokens")},
}  # fmt: skip
POOLED = ""  # the tokens of all clients, for a client without a token file
SAMPLED_SCHEMA = pa.schema(
    {
        "row": pa.int64(),
        "part": pa.int32(),
        "complaint": pa.string(),
        "client": pa.string(),
        "is_pooled": pa.bool_(),
        "source_llm": pa.string(),
        "arrival_s": pa.float64(),
        "input_tokens": pa.int64(),
        "output_tokens": pa.int64(),
        "images": pa.int64(),
        "most_items": pa.int64(),
    }
)
Windows = dict[float, dict[str, TokenLadder]]  # begin in s -> kind -> its ladder


class ClientFile(NamedTuple):
    """The rates of a client."""

    row: int  # of the member, in the order of the names
    name: str
    client: str
    source_llm: str
    slots: RateSlots
    complaints: list[str]  # lines that are not a slot
    rng: np.random.Generator


def write_sampled_requests(folder: Path, target: Path, scale: float, guard: IngestGuard) -> None:
    """Sample the requests of all clients of an unpacked archive; `scale` is the factor on their rates.

    IngestError for more than MOST_SAMPLED_REQUESTS.
    """
    members = sorted(path for path in folder.rglob("*") if path.is_file())
    windows = read_windows([path for path in members if path.name.endswith("-dataset.json")])
    clients = [
        read_client(row, path, folder, scale)
        for row, path in enumerate(members, start=1)
        if path.name.endswith("-trace.csv")
    ]
    total = sum(int(client.slots.requests.sum()) for client in clients)
    if total > MOST_SAMPLED_REQUESTS:
        raise IngestError(
            f"{guard.path.name}: it has {total} requests: give it a rate_scale in its mapping file."
        )
    done = 0
    with (
        pq.ParquetWriter(target, SAMPLED_SCHEMA) as writer,
        guard.progress.bar("sample requests", total) as step,
    ):
        for client in clients:
            for table in sample_client(client, windows):
                writer.write_table(table)
                step(done := done + table.num_rows)
                guard.passed(0)


def read_client(row: int, path: Path, folder: Path, scale: float) -> ClientFile:
    """Read the rates of a client: begin, rate per s, variation, pattern, shape and scale, a slot a line."""
    name = str(path.relative_to(folder))
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]))
    slots, complaints = [], []
    for line in path.read_text(encoding="utf-8", errors="replace").strip("\r\n").split("\n"):
        fields = line.strip("\r").split(",")
        try:
            slot = (float(int(fields[0])), float(fields[1]), fields[3], float(fields[4] or "nan"))
        except (ValueError, IndexError):
            slot = (0.0, -1.0, "", 0.0)
        if len(fields) == 6 and 0 <= slot[1] <= 1e6:
            slots.append(slot)
        else:
            complaints.append(f"not a slot: {','.join(fields)}")
    begins, rates, patterns, shapes = zip(*slots, strict=True) if slots else ((), (), (), ())
    requests = sample_counts(np.array(rates, float), scale, rng)
    is_known = np.isin(np.array(patterns, str), ("Gamma", "Weibull"))
    shape = np.where(is_known, np.fmax(np.array(shapes, float), LEAST_SHAPE), 1.0)
    pattern = np.where(np.array(patterns, str) == "Gamma", GAMMA, WEIBULL)
    rated = RateSlots(np.array(begins, float), requests, pattern, shape)
    return ClientFile(row, name, _client_of(path), path.parent.name, rated, complaints, rng)


def _client_of(path: Path) -> str:
    return path.name.split("-")[1]


def read_windows(files: list[Path]) -> Mapping[str, Windows]:
    """Read the distributions of each client, and those of all clients together (POOLED)."""
    masses: dict[tuple[str, float, str], list[tuple[Any, Any]]] = {}
    for file in files:
        try:
            document = json.loads(file.read_text(encoding="utf-8", errors="replace"))
        except ValueError:
            continue
        for begin, kinds in document.items():
            read = {
                KINDS[kind]: _pairs(text) for kind, text in kinds.items() if kind in KINDS and text != "{}"
            }
            if not read.get("output_tokens", (np.zeros(1), None))[0].max() > 0:
                continue  # nothing came in this window
            for kind, pairs in read.items():
                for client in (_client_of(file), POOLED):
                    masses.setdefault((client, float(begin), kind), []).append(pairs)
    windows: dict[str, Windows] = {}
    for (client, begin, kind), parts in masses.items():
        tokens, mass = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        unique, place = np.unique(tokens, return_inverse=True)
        ladder = make_ladder(unique, np.bincount(place, mass).astype(float))
        windows.setdefault(client, {}).setdefault(begin, {})[kind] = ladder
    return {client: complete for client, of in windows.items() if (complete := _complete_windows(of))}


def _pairs(text: str) -> tuple[Any, Any]:
    """Parse "{10: 0.25, 90: 0.75}" into tokens and masses."""
    numbers = np.array(text.strip("{}").replace(":", ",").split(","), float).reshape(-1, 2)
    return numbers[:, 0].astype(np.int64), numbers[:, 1]


def _complete_windows(windows: Windows) -> Windows:
    needed = ("input_tokens", "output_tokens")
    return {
        begin: windows[begin] for begin in sorted(windows) if all(kind in windows[begin] for kind in needed)
    }


def sample_client(client: ClientFile, windows: Mapping[str, Windows]) -> Iterator[pa.Table]:
    """Yield the requests of a client in blocks, `part` from 1 on, and last its lines that are no slot."""
    own = windows.get(client.client) or windows.get(POOLED, {})
    is_pooled = client.client not in windows
    begins = np.array(list(own))
    part = 0
    for slots in slot_blocks(client.slots):
        slot, arrival_s = sample_arrivals(slots, client.rng)
        columns = _empty_columns(slot.size)
        at = find_windows(slots.slot_s, begins)[slot] if own else np.zeros(0, np.int64)
        for window in np.unique(at):
            chosen = at == window
            sampled = sample_tokens(own[begins[window]], int(chosen.sum()), client.rng)
            for kind, values in sampled.items():
                columns[kind][chosen] = values
        yield _table(client, is_pooled, part, arrival_s, columns, bool(own))
        part += slot.size
    if client.complaints:
        count = len(client.complaints)
        table = _table(client, is_pooled, part, np.zeros(count), _empty_columns(count), False)
        yield table.set_column(2, "complaint", pa.array(client.complaints))


def _empty_columns(count: int) -> dict[str, Any]:
    """Return the columns that are sampled, shape (count,) each; images are -1 where no window counts them."""
    names = ("input_tokens", "output_tokens", "most_items", "images")
    return {name: np.full(count, -1 if name == "images" else 0, np.int64) for name in names}


def sample_tokens(kinds: Mapping[str, TokenLadder], count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Sample input, output and items of `count` requests of a window; arrays of shape (count,) by column."""
    columns = {name: sample_ladder(kinds[name], count, rng) for name in ("input_tokens", "output_tokens")}
    most = np.zeros(count, np.int64)
    for item in ITEMS:
        if f"{item}_count" not in kinds:
            continue
        items = sample_ladder(kinds[f"{item}_count"], count, rng)
        most = np.maximum(most, items)
        if f"{item}_tokens" in kinds:
            sane = np.where((items >= 1) & (items <= MOST_ITEMS), items, 0)
            columns["input_tokens"] = columns["input_tokens"] + sum_items(kinds[f"{item}_tokens"], sane, rng)
        if item == "image":
            columns["images"] = items
    return {**columns, "most_items": most}


def _table(
    client: ClientFile,
    is_pooled: bool,
    part: int,
    arrival_s: Any,
    columns: Mapping[str, Any],
    has_tokens: bool,
) -> pa.Table:
    """Return requests as a table of SAMPLED_SCHEMA; without tokens these are null."""
    count = arrival_s.size
    same = {
        "row": client.row,
        "client": client.client,
        "is_pooled": is_pooled,
        "source_llm": client.source_llm,
    }
    arrays = {
        name: pa.repeat(pa.scalar(value, SAMPLED_SCHEMA.field(name).type), count)
        for name, value in same.items()
    }
    arrays |= {"part": np.arange(part + 1, part + count + 1, dtype=np.int32), "arrival_s": arrival_s}
    arrays |= {
        name: values if has_tokens else pa.nulls(count, pa.int64()) for name, values in columns.items()
    }
    arrays["complaint"] = pa.nulls(count, pa.string())
    return pa.table({name: arrays[name] for name in SAMPLED_SCHEMA.names}, schema=SAMPLED_SCHEMA)
