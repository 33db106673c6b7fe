"""What the quality report finds is what was put into the trace; tiers come by the first rule that speaks."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from fleetcast.assets.demand.arrival_windows import write_arrival_windows
from fleetcast.assets.demand.demand import INTERACTIVE, build_demand, read_demand_matrix
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.data_quality import assess_trace
from fleetcast.assets.traces.ingest import ingest_file
from fleetcast.models.world.catalogue import load_catalogue

CATALOGUE = load_catalogue().of_era("2023", "here")
START = datetime(2024, 5, 6, tzinfo=UTC)  # a Monday
BURST = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"


def land(lake: Lake, header: str, rows: list[str], mapping: str = "") -> None:
    folder = lake.root.parent
    (folder / "t.toml").write_text(f'trace = "t"\nstart = 2024-05-06T00:00:00Z\n{mapping}')
    (folder / "t.csv").write_text("\n".join([header, *rows]))
    ingest_file(folder / "t.csv", lake, CATALOGUE)


def azure(seconds: np.ndarray, inputs: np.ndarray, outputs: np.ndarray) -> list[str]:
    instants = (START + timedelta(seconds=float(s)) for s in seconds)
    return [f"{t:%Y-%m-%d %H:%M:%S.%f},{i},{o}" for t, i, o in zip(instants, inputs, outputs, strict=True)]


def found(lake: Lake) -> dict[str, list[dict]]:
    """Aspect -> its findings."""
    rows = assess_trace(lake, "t").to_pylist()
    return {row["aspect"]: [r for r in rows if r["aspect"] == row["aspect"]] for row in rows}


@pytest.fixture
def steady(lake: Lake) -> Lake:
    """Four days at a request every 12 seconds, with defects: collected with breaks, clipped, stuttering."""
    rng = np.random.default_rng(1)
    seconds = np.arange(0.0, 4 * 86_400, 12)
    hour = seconds / 3600
    kept = (hour < 30) | (hour >= 31.5)  # an hour and a half is silent
    kept &= (hour < 60) | (hour >= 60.1)  # six minutes are shorter than a slot: no silence
    kept &= hour >= 6  # the first day is cut
    seconds = seconds[kept]
    inputs = np.minimum(rng.lognormal(6, 1, seconds.size).astype(int) + 1, 2048)
    outputs = rng.integers(1, 400, seconds.size)
    rows = azure(seconds, inputs, outputs)
    rows += rows[100:103]  # a clock step back of days, and three requests twice
    rows.append("2024-05-09 10:00:00,0,5")
    land(lake, "TIMESTAMP,ContextTokens,GeneratedTokens", rows)
    lake.clipped = int((inputs == 2048).sum())
    return lake


def test_the_report_finds_what_was_put_in(steady):
    report = found(steady)
    [file] = steady.sql("select rows_kept, rows_in from ingests").to_pylist()
    assert report["kept"][0]["rows"] == file["rows_kept"]
    of_all = [*report["kept"], *report["quarantined"]]
    assert [f["share"] for f in of_all] == [f["rows"] / file["rows_in"] for f in of_all]
    assert sum(f["rows"] for f in of_all) == file["rows_in"]
    assert [(f["rows"], f["detail"]) for f in report["quarantined"]] == [
        (1, "input_tokens lies outside 1 to 2147483647")
    ]
    assert [(f["rows"], f["verdict"]) for f in report["duplicates"]] == [(3, "note")]
    assert [(f["rows"], f["detail"]) for f in report["clipped tokens"]] == [
        (steady.clipped, "input_tokens end in a spike at 2048")
    ]
    assert report["clock steps"][0]["rows"] == 1
    assert report["truncated days"][0]["detail"].startswith(
        "the first day begins at 06:00, the last ends at 23"
    )
    assert "missing days" not in report
    assert report["silences"][0]["detail"].startswith("1 gaps of 90 minutes where 450 requests")
    silence = steady.sql("select silence_start, silence_end, slots from silences").to_pylist()
    hour = {None: None} | {START + timedelta(hours=h): h for h in (6, 30, 31.5, 96)}
    assert [(hour[s["silence_start"]], hour[s["silence_end"]], s["slots"]) for s in silence] == [
        (None, 6, 0),
        (30, 31.5, 9),
        (96, None, 0),  # it ends with its last day: what comes then is not known
    ]


def test_a_silence_is_missing_demand_and_no_zero(steady):
    """Every bucket that a silence touches is nan, as before the first request; the others are what came."""
    for n in range(4):
        build_demand(steady, "t", START.date() + timedelta(days=n))
    assess_trace(steady, "t")
    days = START.date(), START.date() + timedelta(days=3)
    rates = read_demand_matrix(steady, "t", *days, 60, CATALOGUE).tier_series(INTERACTIVE)
    assert np.isnan(rates).any(axis=(0, 1)).nonzero()[0].tolist() == [*range(6), 30, 31]
    assert np.nan_to_num(rates[..., 60]).sum() > 0  # six minutes less are no silence


def test_bursts_with_hours_of_silence_between_are_no_defect(lake):
    rng = np.random.default_rng(2)
    seconds = np.sort(np.concatenate([hour * 3600 + rng.uniform(0, 300, 200) for hour in range(0, 96, 5)]))
    tokens = rng.integers(1, 99, (2, seconds.size))
    land(lake, "TIMESTAMP,ContextTokens,GeneratedTokens", azure(seconds, *tokens))
    report = found(lake)
    assert "silences" not in report
    assert {f["detail"]: f["rows"] for f in report["tier"]} == {"bursts, confidence 0.5": seconds.size}
    assert lake.sql("select distinct tier, deadline_s from requests").to_pylist() == [
        {"tier": "niw", "deadline_s": CATALOGUE.tiers["niw"].deadline_s}
    ]


def test_an_app_that_keeps_office_hours_is_interactive(lake):
    rng = np.random.default_rng(3)
    days = rng.choice(7, 3000, p=[0.19] * 5 + [0.025] * 2)
    seconds = np.sort(days * 86_400 + rng.uniform(0, 86_400, 3000))
    tokens = rng.integers(1, 99, (2, 3000))
    rows = [f"{s:.3f},,1,GPT-4,{i},{o},9,API log" for s, i, o in zip(seconds, *tokens, strict=True)]
    land(lake, BURST, rows)
    assert [(f["detail"], f["verdict"]) for f in found(lake)["tier"]] == [
        ("office_hours, confidence 0.4", "note")
    ]


@pytest.mark.parametrize(
    ("mapping", "sources"),
    [
        ("", {"app": 2, "dealt": 1}),
        ('tier = "infer"', {"app": 2, "dealt": 1}),
        ('app = "nightly-embeddings"', {"app": 2, "dealt": 1}),  # the source's own app comes first
        ('tier = "niw"', {"mapping": 3}),
    ],
)
def test_a_tier_is_inferred_only_where_none_is_given(lake, mapping, sources):
    apps = ("Conversation log", "chat", "API log")
    land(lake, BURST, [f"{n},,1,GPT-4,5,5,10,{app}" for n, app in enumerate(apps)], mapping)
    rows = lake.read("requests").to_pylist()
    assert Counter(row["tier_source"] for row in rows) == sources
    assert all(
        row["tier_confidence"] == {"app": 0.7, "mapping": 1.0, "dealt": 0.0}[row["tier_source"]]
        for row in rows
    )
    assert all(row["tier"] == "iw_fast" for row in rows if row["tier_source"] == "app")
    assert all(row["tier"] == "niw" for row in rows if row["tier_source"] == "mapping")


def test_a_name_of_the_source_is_one_llm_and_is_reported(lake):
    models = ["GPT-4", "ChatGPT", "llama2-70b", "Qwen/Qwen3-32B"]
    rows = [f"{n},,1,{models[n % 4]},5,5,10,API log" for n in range(400)]
    land(lake, BURST, rows, 'llm_names = { "GPT-4" = "bloom-176b" }')
    pairs = lake.sql("select distinct source_llm, llm from requests order by source_llm").to_pylist()
    llms = {pair["source_llm"]: pair["llm"] for pair in pairs}
    assert (len(pairs), llms["GPT-4"], llms["llama2-70b"]) == (4, "bloom-176b", "llama2-70b")
    assert llms["Qwen/Qwen3-32B"] == "qwen3-32b", "the llm of the catalogue with this name on Hugging Face"
    notes = {f["detail"]: f["rows"] for f in found(lake)["llm"]}
    assert notes == {f"{name} is mapped to {llm}": 100 for name, llm in llms.items() if name != llm}


def test_a_coarse_clock_is_named_and_gaps_are_withheld(lake: Lake, steady: Lake) -> None:
    (grid,) = found(steady)["arrival grid"]
    assert grid["detail"] == "all arrivals lie on a grid of 12 s: gaps between them mean nothing"
    days = steady.days("requests", "t")
    write_arrival_windows(steady, "t", days[1])
    assert steady.read("arrival_windows", trace="t", day=days[1]).num_rows == 0


def test_what_prompts_share_is_reported(lake: Lake) -> None:
    path = lake.root.parent / "t.jsonl"
    rows = [(0, [1, 2, 3]), (37, [1, 2, 4]), (81, [1, 2, 3]), (95, [9])]
    lines = [
        {"timestamp": ms, "input_length": 512 * len(ids), "output_length": 5, "hash_ids": ids}
        for ms, ids in rows
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    (lake.root.parent / "t.toml").write_text('trace = "t"\nllm = "llama2-70b"\n')
    ingest_file(path, lake, CATALOGUE)
    (shared,) = found(lake)["reusable prompts"]
    assert shared["share"] == 0.5  # five of ten blocks
    assert 'prefix = "blocks" reuses them' in shared["detail"]
    assert "arrival grid" not in found(lake)
