"""Sessions and shared prompt prefixes of a generated trace, fitted to the original.

The models are in models/traffic/sessions.py and models/traffic/prefixes.py.
"""

from datetime import date
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.models.aliases import Ints
from fleetcast.models.traffic import prefixes, sessions
from fleetcast.models.traffic.random_streams import random_stream
from fleetcast.models.traffic.sessions import Sessions

MOST_REQUESTS = 50_000  # earliest requests of the original used as templates, where they have blocks
MOST_TURNS = 1_000_000  # the same where requests have sessions only
PROMPT_STREAM_KEYS = ["llm", "app"]  # requests of equal keys share blocks
MIN_STAYING_SHARE = 0.9  # of the sessions of several turns stay in one region or tier


class PromptTraffic(NamedTuple):
    """Fitted sessions and prefixes; without streams where the source has neither."""

    streams: dict[tuple[str, ...], int]  # number of each llm and app
    keys: list[str]  # columns that are constant within a session
    of_session: dict[tuple[str, ...], int]  # number of each combination of these
    templates: prefixes.Prefixes | None
    sessions: Sessions | None
    tokens: np.ndarray  # (requests, 2) input and output tokens of the templates


def fit_prompts(lake: Lake, trace: str) -> PromptTraffic:
    """Fit the earliest requests of a trace that have sessions or block hashes."""
    rows = lake.sql("reads/prompts.sql", trace=trace, few=MOST_REQUESTS, most=MOST_TURNS)
    kinds = ("input_tokens", "output_tokens")
    tokens = np.column_stack([rows[kind].to_numpy().astype(np.int64) for kind in kinds])
    if not rows.num_rows:
        return PromptTraffic({}, PROMPT_STREAM_KEYS, {}, None, None, tokens)
    session = pd.factorize(rows["session_id"].to_pandas())[0].astype(np.int64)
    keys = [*PROMPT_STREAM_KEYS, *_keys_constant_in_sessions(rows)]
    hashes = rows["hashes"].combine_chunks()
    first, blocks = hashes.offsets.to_numpy().astype(np.int64), hashes.values.to_numpy().astype(np.uint64)
    streams, stream = _number_combinations(rows, PROMPT_STREAM_KEYS)
    of_session, session_stream = _number_combinations(rows, keys)
    return PromptTraffic(
        streams,
        keys,
        of_session,
        prefixes.fit_prefixes(stream, tokens[:, 0], first, blocks) if blocks.size else None,
        sessions.fit_sessions(session_stream, session, rows["at"].to_numpy(), first, blocks),
        tokens,
    )


def add_prompts(rows: pa.Table, traffic: PromptTraffic, day: date, seed: int) -> pa.Table:
    """Add sessions, their tokens and block hashes to the requests of a generated day, in order of arrival."""
    if traffic.sessions is None:
        return rows
    at = rows["arrived_at"].cast(pa.int64()).to_numpy()
    stream = _stream_numbers(rows, traffic.keys, traffic.of_session)
    turns = sessions.draw_turns(traffic.sessions, stream, at, random_stream(seed, day, "sessions"))
    is_turn = turns.template >= 0
    ids = rows["request_id"].to_numpy()
    roots = ids[sessions.session_roots(turns.previous)].astype(str)
    columns = {"session_id": pa.array(roots, pa.string(), mask=~is_turn)}
    for number, name in enumerate(("input_tokens", "output_tokens")):
        recorded = traffic.tokens[np.maximum(turns.template, 0), number]
        columns[name] = np.where(is_turn, recorded, rows[name].to_numpy())
    if traffic.templates is not None:
        rng = random_stream(seed, day, "prefixes")
        codes = _stream_numbers(rows, PROMPT_STREAM_KEYS, traffic.streams)
        first, hashes = prefixes.draw_prefixes(
            traffic.templates, codes, columns["input_tokens"], ids, rng, turns, traffic.sessions.kept
        )
        offsets = pa.array(first, pa.int32(), mask=np.append(np.diff(first) == 0, False))
        columns["prefix_hashes"] = pa.ListArray.from_arrays(offsets, pa.array(hashes, pa.uint64()))
    for name, values in columns.items():
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, pa.array(values).cast(SCHEMAS["requests"].field(name).type))
    return rows


def _keys_constant_in_sessions(rows: pa.Table) -> list[str]:
    """Return those of region and tier that are constant within most sessions of the source."""
    turns = rows.select(["session_id", "region", "tier"]).to_pandas().dropna()
    several = turns[turns["session_id"].duplicated(keep=False)].groupby("session_id")
    stays = (several[["region", "tier"]].nunique() == 1).mean()
    return [key for key in ("region", "tier") if stays[key] > MIN_STAYING_SHARE]  # nan without sessions


def _number_combinations(rows: pa.Table, keys: list[str]) -> tuple[dict[tuple[str, ...], int], Ints]:
    """Number the combinations of the keys' values; return the numbers, and that of each row, (rows,)."""
    pairs = list(zip(*(rows[key].to_pylist() for key in keys), strict=True))
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    return numbers, np.array([numbers[pair] for pair in pairs], np.int64)


def _stream_numbers(rows: pa.Table, keys: list[str], numbers: dict[tuple[str, ...], int]) -> Ints:
    """Return the number of each row's combination, (rows,); -1 for an unknown one."""
    pairs = zip(*(rows[key].to_pylist() for key in keys), strict=True)
    return np.array([numbers.get(pair, -1) for pair in pairs], np.int64)
