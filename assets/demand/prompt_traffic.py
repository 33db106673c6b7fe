"""What the prompts of a made trace have in common, fitted to the original: sessions, and the hashes of blocks
(models/traffic/sessions.py and prefixes.py)."""

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

MOST_REQUESTS = 50_000  # of the original, the earliest, that are templates where they have blocks
MOST_TURNS = 1_000_000  # and where they have sessions only
PROMPT_STREAM_KEYS = ["llm", "app"]  # whose prompts share blocks
MIN_STAYING_SHARE = 0.9  # of the sessions of several turns, in one region or tier


class PromptTraffic(NamedTuple):
    """What is fitted to a trace; without streams where the source says nothing of prompts."""

    streams: dict[tuple[str, ...], int]  # llm and app
    keys: list[str]  # by which sessions are told apart
    of_session: dict[tuple[str, ...], int]  # by these
    templates: prefixes.Prefixes | None
    sessions: Sessions | None
    tokens: np.ndarray  # (requests, 2) input and output of the templates


def fit_prompts(lake: Lake, trace: str) -> PromptTraffic:
    """Fit the earliest requests of a trace of which the source gives sessions or block hashes."""
    rows = lake.sql(
        "reads/prompts.sql",
        trace=trace,
        few=MOST_REQUESTS,
        most=MOST_TURNS,
    )
    kinds = ("input_tokens", "output_tokens")
    tokens = np.column_stack([rows[kind].to_numpy().astype(np.int64) for kind in kinds])
    if not rows.num_rows:
        return PromptTraffic({}, PROMPT_STREAM_KEYS, {}, None, None, tokens)
    said = pd.factorize(rows["session_id"].to_pandas())[0].astype(np.int64)
    keys = [*PROMPT_STREAM_KEYS, *_keys_constant_in_sessions(rows)]
    hashes = rows["hashes"].combine_chunks()
    first, blocks = hashes.offsets.to_numpy().astype(np.int64), hashes.values.to_numpy().astype(np.uint64)
    (streams, of_stream), (of_session, who) = (
        _number_combinations(rows, PROMPT_STREAM_KEYS),
        _number_combinations(rows, keys),
    )
    return PromptTraffic(
        streams,
        keys,
        of_session,
        prefixes.fit_prefixes(of_stream, tokens[:, 0], first, blocks) if blocks.size else None,
        sessions.fit_sessions(who, said, rows["at"].to_numpy(), first, blocks),
        tokens,
    )


def add_prompts(rows: pa.Table, traffic: PromptTraffic, day: date, seed: int) -> pa.Table:
    """The requests of a made day, in order of arrival, with the tokens of sessions and with block hashes."""
    if traffic.sessions is None:
        return rows
    at = rows["arrived_at"].cast(pa.int64()).to_numpy()
    who = _stream_numbers(rows, traffic.keys, traffic.of_session)
    turns = sessions.draw_turns(traffic.sessions, who, at, random_stream(seed, day, "sessions"))
    is_turn = turns.template >= 0
    ids = rows["request_id"].to_numpy()
    named = pa.array(ids[sessions.session_roots(turns.previous)].astype(str), pa.string(), mask=~is_turn)
    made = {"session_id": named}
    for number, name in enumerate(("input_tokens", "output_tokens")):
        seen = traffic.tokens[np.maximum(turns.template, 0), number]
        made[name] = np.where(is_turn, seen, rows[name].to_numpy())
    if traffic.templates is not None:
        rng, codes = (
            random_stream(seed, day, "prefixes"),
            _stream_numbers(rows, PROMPT_STREAM_KEYS, traffic.streams),
        )
        first, hashes = prefixes.draw_prefixes(
            traffic.templates, codes, made["input_tokens"], ids, rng, turns, traffic.sessions.kept
        )
        offsets = pa.array(first, pa.int32(), mask=np.append(np.diff(first) == 0, False))
        made["prefix_hashes"] = pa.ListArray.from_arrays(offsets, pa.array(hashes, pa.uint64()))
    for name, values in made.items():
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, pa.array(values).cast(SCHEMAS["requests"].field(name).type))
    return rows


def _keys_constant_in_sessions(rows: pa.Table) -> list[str]:
    """Of region and tier those in which a session stays, where the source names sessions."""
    turns = rows.select(["session_id", "region", "tier"]).to_pandas().dropna()
    several = turns[turns["session_id"].duplicated(keep=False)].groupby("session_id")
    stays = (several[["region", "tier"]].nunique() == 1).mean()
    return [key for key in ("region", "tier") if stays[key] > MIN_STAYING_SHARE]  # of no session it is nan


def _number_combinations(rows: pa.Table, keys: list[str]) -> tuple[dict[tuple[str, ...], int], Ints]:
    """A number for each combination of texts, and that of each row."""
    pairs = list(zip(*(rows[key].to_pylist() for key in keys), strict=True))
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    return numbers, np.array([numbers[pair] for pair in pairs], np.int64)


def _stream_numbers(rows: pa.Table, keys: list[str], numbers: dict[tuple[str, ...], int]) -> Ints:
    """The number of each row, -1 where it has none."""
    pairs = zip(*(rows[key].to_pylist() for key in keys), strict=True)
    return np.array([numbers.get(pair, -1) for pair in pairs], np.int64)
