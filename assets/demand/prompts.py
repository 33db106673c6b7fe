"""What the prompts of a made trace have in common, fitted to the original: sessions, and the hashes of blocks
(models/traffic/sessions.py and prefixes.py)."""

from datetime import date
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from assets.demand.spacings import KEYS as CLIENT
from assets.lake.schemas import REQUEST_SCHEMA
from assets.lake.warehouse import Lake
from models.traffic import prefixes, sessions
from models.traffic.drawing import Integers, stream
from models.traffic.sessions import Sessions

MOST_REQUESTS = 50_000  # of the original, the earliest, that are templates
STREAM = ["llm", "app"]  # whose prompts share blocks


class PromptTraffic(NamedTuple):
    """What is fitted to a trace; without streams where the source says nothing of prompts."""

    streams: dict[tuple[str, ...], int]  # llm and app
    of_session: dict[tuple[str, ...], int]  # whose sessions: by `keys`
    keys: list[str]
    templates: prefixes.Prefixes | None
    sessions: Sessions | None
    tokens: np.ndarray  # (requests, 2) input and output of the templates


def fit_prompts(lake: Lake, trace: str) -> PromptTraffic:
    """Fit the earliest requests of a trace of which the source gives sessions or block hashes."""
    rows = lake.sql(
        "select llm, app, region, tier, input_tokens, output_tokens, epoch_us(arrived_at) as at, session_id, "
        "coalesce(prefix_hashes, []) as hashes from requests where trace = $trace and (llm, app) in "
        "(select (llm, app) from requests where trace = $trace "
        "and (len(prefix_hashes) > 0 or session_id is not null)) "
        "order by arrived_at, request_id limit $most",
        trace=trace,
        most=MOST_REQUESTS,
    )
    kinds = ("input_tokens", "output_tokens")
    tokens = np.column_stack([rows[kind].to_numpy().astype(np.int64) for kind in kinds])
    if not rows.num_rows:
        return PromptTraffic({}, {}, STREAM, None, None, tokens)
    said = pd.factorize(rows["session_id"].to_pandas())[0].astype(np.int64)
    keys = CLIENT if (said >= 0).any() else STREAM  # what a source calls a session stays with its client
    hashes = rows["hashes"].combine_chunks()
    first, blocks = hashes.offsets.to_numpy().astype(np.int64), hashes.values.to_numpy().astype(np.uint64)
    (streams, of_stream), (of_session, who) = _numbered(rows, STREAM), _numbered(rows, keys)
    return PromptTraffic(
        streams,
        of_session,
        keys,
        prefixes.fit(of_stream, tokens[:, 0], first, blocks) if blocks.size else None,
        sessions.fit(who, said, rows["at"].to_numpy(), first, blocks),
        tokens,
    )


def with_prompts(rows: pa.Table, traffic: PromptTraffic, day: date, seed: int) -> pa.Table:
    """The requests of a made day, in order of arrival, with the tokens of sessions and with block hashes."""
    if traffic.sessions is None:
        return rows
    at = rows["arrived_at"].cast(pa.int64()).to_numpy()
    who = _streams(rows, traffic.keys, traffic.of_session)
    turns = sessions.draw(traffic.sessions, who, at, stream(seed, day, "sessions"))
    is_turn = turns.template >= 0
    ids = rows["request_id"].to_numpy()
    named = pa.array(ids[sessions.roots(turns.previous)].astype(str), pa.string(), mask=~is_turn)
    made = {"session_id": named}
    for number, name in enumerate(("input_tokens", "output_tokens")):
        seen = traffic.tokens[np.maximum(turns.template, 0), number]
        made[name] = np.where(is_turn, seen, rows[name].to_numpy())
    if traffic.templates is not None:
        rng, codes = stream(seed, day, "prefixes"), _streams(rows, STREAM, traffic.streams)
        first, hashes = prefixes.draw(
            traffic.templates, codes, made["input_tokens"], ids, rng, turns, traffic.sessions.kept
        )
        offsets = pa.array(first, pa.int32(), mask=np.append(np.diff(first) == 0, False))
        made["prefix_hashes"] = pa.ListArray.from_arrays(offsets, pa.array(hashes, pa.uint64()))
    for name, values in made.items():
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, pa.array(values).cast(REQUEST_SCHEMA.field(name).type))
    return rows


def _numbered(rows: pa.Table, keys: list[str]) -> tuple[dict[tuple[str, ...], int], Integers]:
    """A number for each combination of texts, and that of each row."""
    pairs = list(zip(*(rows[key].to_pylist() for key in keys), strict=True))
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    return numbers, np.array([numbers[pair] for pair in pairs], np.int64)


def _streams(rows: pa.Table, keys: list[str], numbers: dict[tuple[str, ...], int]) -> Integers:
    """The number of each row, -1 where it has none."""
    pairs = zip(*(rows[key].to_pylist() for key in keys), strict=True)
    return np.array([numbers.get(pair, -1) for pair in pairs], np.int64)
