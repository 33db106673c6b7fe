"""A trace from metrics: every reading keeps its requests and tokens, whatever happens to the counters."""

import json
import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_counters import Served, answer, counters, results

from fleetcast.assets.demand.demand import build_demand
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.data_quality import assess_trace
from fleetcast.assets.traces.ingest import IngestReport, ingest_file
from fleetcast.assets.traces.ingest_bounds import IngestError
from fleetcast.assets.traces.landing import forget_file
from fleetcast.assets.traces.metrics_ingest import land_metrics
from fleetcast.models.traffic.counter_readings import find_duplicate_processes
from fleetcast.models.traffic.length_histograms import (
    LengthHistogram,
    draw_lengths,
    length_cells,
    shift_means,
    spread_histogram,
)
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config

CATALOGUE = load_catalogue()
DAY = datetime(2025, 7, 2, tzinfo=UTC)
MIDNIGHT = DAY.timestamp()
T = MIDNIGHT + np.arange(0, 6 * 3600 + 1, 60.0)  # six hours, a reading a minute
HOURS = T[::60]
MODEL = "llama2-70b"


def process(seed: int, first_s: float = 0.0, last_s: float = 6 * 3600.0, per_s: float = 0.5) -> Served:
    """Return requests that one process served between two instants of the day."""
    rng = np.random.default_rng(seed)
    size = rng.poisson(per_s * (last_s - first_s))
    arrived = MIDNIGHT + np.sort(rng.uniform(first_s, last_s, size))
    inputs, outputs = (np.ceil(rng.lognormal(np.log(middle), 0.8, size)) for middle in (900, 120))
    ttft_s = rng.gamma(2.0, 2.0, size)
    return Served(arrived, inputs, outputs, ttft_s, ttft_s + 0.02 * outputs)


def series(
    served: Served, labels: dict[str, str], t: np.ndarray = T, late_s: float = 0.0
) -> list[dict[str, Any]]:
    """Return all counters of a process as query_range writes them, read `late_s` after its instants."""
    found = counters(served, t + late_s, t[::60] + late_s)
    labels = {"model_name": MODEL, **labels}
    return [results(labels, name, le, at - late_s, value) for name, le, at, value in found]


def land(
    tmp_path: Path, *parts: list[dict[str, Any]], mapping: str = 'tier = "iw_fast"\nregion = "east"'
) -> tuple[Lake, IngestReport]:
    """Import answers into a separate lake."""
    folder = tmp_path / "mine.metrics"
    folder.mkdir(exist_ok=True)
    (tmp_path / "mine.toml").write_text(mapping)
    for number, part in enumerate(parts):
        (folder / f"{number}.json").write_text(json.dumps(answer(part)))
    lake = Lake(tmp_path / "lake")
    return lake, land_metrics(folder, lake, CATALOGUE)


def by_minute(lake: Lake) -> np.ndarray:
    """Requests and input tokens of the demand of each minute of the six hours, (360, 2)."""
    build_demand(lake, "mine", DAY.date())
    rows = lake.sql(
        "select bucket_start as t, sum(requests) as n, sum(input_tokens) as i from demand group by t"
    ).to_pandas()
    found = np.zeros((360, 2))
    minute = (
        rows["t"].astype("int64") // (60 * 10**6 if rows["t"].dt.unit == "us" else 60 * 10**9)
    ).to_numpy() - int(MIDNIGHT) // 60
    inside = (minute >= 0) & (minute < 360)
    found[minute[inside]] = rows[["n", "i"]].to_numpy(float)[inside]
    return found


def true_minutes(*processes: Served) -> np.ndarray:
    """Return what the logs of the same processes give, by the instant of the first token."""
    found = np.zeros((360, 2))
    for served in processes:
        minute = ((served.arrived - MIDNIGHT) // 60).astype(int)
        inside = minute < 360
        np.add.at(
            found, minute[inside], np.stack([np.ones(inside.sum()), served.input_tokens[inside]], axis=1)
        )
    return found


def find_details(lake: Lake, aspect: str) -> list[str]:
    """Return the findings of an aspect."""
    rows = lake.read("metric_findings", trace="mine").to_pylist()
    return [
        f"{row['verdict']}: {row['detail']} {row['rows'] or ''}".strip()
        for row in rows
        if row["aspect"] == aspect
    ]


def test_demand_and_lengths_are_those_of_the_logs(tmp_path: Path) -> None:
    """Two processes; two jobs read one of them 20 s apart: counted once. A second import changes nothing."""
    one, other = process(1), process(2)
    twice = series(one, {"instance": "a", "job": "pods"}, late_s=20.0)
    lake, report = land(
        tmp_path, series(one, {"instance": "a", "job": "vllm"}), twice + series(other, {"instance": "b"}),
        series(process(3, per_s=0.0), {"instance": "c", "model_name": "idle"}),
    )  # fmt: skip
    true, found = true_minutes(one, other), by_minute(lake)
    assert np.abs(found - true)[:, 0].sum() / true[:, 0].sum() < 0.06
    quarters = np.abs((found - true).reshape(24, 15, 2).sum(axis=1)).sum(axis=0) / true.sum(axis=0)
    assert quarters.max() < 0.01
    late = sum(int((p.arrived + p.ttft_s <= T[-1]).sum()) for p in (one, other))
    assert report.rows_kept == late
    rows = lake.sql(
        "select epoch(arrived_at) as t, input_tokens as i, output_tokens as o from requests"
    ).to_pandas()
    counted = np.concatenate([p.arrived[p.arrived + p.ttft_s <= T[-1]] for p in (one, other)])
    assert rows["t"].mean() == pytest.approx(counted.mean(), abs=1.0)  # the counters lag by 4 s
    for column, values in (
        ("i", [p.input_tokens for p in (one, other)]),
        ("o", [p.output_tokens for p in (one, other)]),
    ):
        levels = np.quantile(np.concatenate(values), [0.25, 0.5, 0.75, 0.95])
        ranks = [(rows[column] <= level).mean() for level in levels]
        assert ranks == pytest.approx([0.25, 0.5, 0.75, 0.95], abs=0.02)
    done = sum(p.output_tokens[p.arrived + p.e2e_s <= T[-1]].sum() for p in (one, other))
    assert rows["o"].sum() == done
    assert find_details(lake, "no requests") == ["warn: vllm idle: no counter of requests grew"]
    assert find_details(lake, "joined late") == find_details(lake, "restarts") == []
    assert find_details(lake, "read twice") == ["note: job=pods repeats another series: counted once"]
    assert "the rank of a length is known to within" in find_details(lake, "confidence")[1]
    assert any(
        text.startswith("note: requests match the counters") for text in find_details(lake, "confidence")
    )
    assert {"read twice", "confidence", "kept"} <= set(assess_trace(lake, "mine")["aspect"].to_pylist())
    assert lake.sql("select distinct measure from engine_histograms").num_rows == 4
    assert not land_metrics(tmp_path / "mine.metrics", lake, CATALOGUE).is_new
    few = lake.read("requests").slice(0, 9).drop_columns(["trace", "day"])
    lake.write("requests", few, file="mine.metrics", trace="mine", day=date(2020, 1, 1))
    land(tmp_path, series(other, {"instance": "a", "job": "vllm"}))  # of other answers no day is left
    assert lake.days("requests", "mine") == [DAY.date()]
    assert forget_file(RunSettings(lake, CATALOGUE, load_config("sageserve", CATALOGUE)), "mine.metrics") == [
        "mine"
    ]
    assert not lake.files("requests") + lake.files("metric_findings") + lake.files("engine_histograms")


def test_starting_and_restarting_processes_lose_no_reading(tmp_path: Path) -> None:
    """One begins within the readings, one ends, one restarts at 0, one was old at its first reading."""
    ends, begins = process(1, 0, 7200), process(2, 7230, 6 * 3600)
    again = [process(3, 0, 3590), process(4, 3605, 6 * 3600)]
    older = [process(seed, -36_000, 6 * 3600) for seed in (5, 6)]
    cut = T <= MIDNIGHT + 7260
    part = [
        series(half, {"instance": "restarts"}, T[where])
        for half, where in zip(again, (T <= MIDNIGHT + 3600, T > MIDNIGHT + 3600), strict=True)
    ]
    joined = [
        {**a, "values": a["values"] + b["values"]}
        for a, b in zip(*part, strict=True)
        if a["metric"].get("le") is None
    ]
    lake, _ = land(
        tmp_path,
        series(ends, {"instance": "ends"}, T[cut]),
        series(begins, {"instance": "begins"}, T[T >= MIDNIGHT + 7260]),
        joined,
        *(series(old, {"instance": f"old {n}"}, T[T >= MIDNIGHT + 10_800]) for n, old in enumerate(older)),
    )  # fmt: skip
    read = [old.arrived + old.ttft_s > MIDNIGHT + 10_800 for old in older]
    late = [Served(*(column[of] for column in old)) for old, of in zip(older, read, strict=True)]
    true = true_minutes(ends, begins, *again, *late)
    found = by_minute(lake)
    assert found.sum(axis=0) == pytest.approx(true.sum(axis=0), rel=0.002)
    assert np.abs(found - true)[:, 0].max() < 20
    quarters = np.abs((found - true).reshape(24, 15, 2).sum(axis=1))[:, 1]
    assert quarters.max() < 0.02 * true[:, 1].sum() / 24
    assert find_details(lake, "joined late") == [
        "note: 2 processes had counted before they were first read: left out"
    ]
    assert find_details(lake, "restarts")[0].startswith("note: 1 counters of requests began again")


def test_unread_hours_are_unknown_and_partial_gaps_are_spread(tmp_path: Path) -> None:
    """Two hours without any reading are left out and reported; one process alone is spread over its gap."""
    one, other = process(1), process(2)
    out = (T > MIDNIGHT + 7200) & (T < MIDNIGHT + 14_400)
    alone = (T > MIDNIGHT + 15_000) & (T < MIDNIGHT + 18_000)
    lake, report = land(
        tmp_path, series(one, {"instance": "a"}, T[~out & ~alone]), series(other, {"instance": "b"}, T[~out])
    )
    found, true = by_minute(lake), true_minutes(one, other)
    assert found[121:239].sum() == 0
    assert found[260:300].sum(axis=0) == pytest.approx(true[260:300].sum(axis=0), rel=0.05)
    assert find_details(lake, "gaps")[0].startswith(
        "warn: 1 gaps, 2.0 h in all, without a reading of an endpoint"
    )
    assess_trace(lake, "mine")
    left_out = int(find_details(lake, "gaps")[0].split()[-1])
    whole = sum(int((p.arrived + p.ttft_s <= T[-1]).sum()) for p in (one, other))
    assert report.rows_kept + left_out == whole
    assert (
        lake.sql(
            "select * from silences where silence_end is not null and silence_start is not null"
        ).num_rows
        == 1
    )


def test_renamed_metrics_other_buckets_and_a_frontend(tmp_path: Path) -> None:
    """An upgrade changes buckets, a frontend counts the same requests again: each is read correctly."""
    old, new = process(1, 0, 10_800), process(2, 10_815, 6 * 3600)
    before, after = (
        series(old, {"instance": "a"}, T[T <= MIDNIGHT + 10_800]),
        series(new, {"instance": "a"}, T[T > MIDNIGHT + 10_800]),
    )
    after = [one for one in after if one["metric"].get("le") not in ("200.0", "500.0")]
    lake, report = land(tmp_path, before, after)
    true, found = true_minutes(old, new), by_minute(lake)
    assert found.sum(axis=0) == pytest.approx(true.sum(axis=0), rel=0.002)
    assert find_details(lake, "other buckets") == [
        f"note: {m}_tokens come in 2 layouts of buckets: each is read with its own bounds"
        for m in ("input", "output")
    ]
    share = "select avg((input_tokens <= $bound)::int) as share from requests where hour(arrived_at) >= 4"
    for bound in (500, 1000, 2000):
        share_below = lake.sql(share, bound=bound)["share"][0].as_py()
        assert share_below == pytest.approx((new.input_tokens <= bound).mean(), abs=0.03)
    names = {
        "vllm:request_prompt_tokens": "dynamo_frontend_input_sequence_tokens",
        "vllm:request_generation_tokens": "dynamo_frontend_output_sequence_tokens",
        "vllm:time_to_first_token_seconds": "dynamo_frontend_time_to_first_token_seconds",
    }
    frontend = []
    for one in before:
        metric = dict(one["metric"])
        base, _, kind = metric.pop("__name__").rpartition("_")
        if base in names:
            metric |= {
                "__name__": f"{names[base]}_{kind}",
                "model": metric.pop("model_name"),
                "instance": "front",
            }
            frontend.append({**one, "metric": metric})
    again, both = land(tmp_path, before, [], frontend)
    assert abs(both.rows_kept - old.arrived.size) < 30  # some of the last requests had not ended
    assert find_details(again, "read twice") == [
        f"note: vllm counts {MODEL} behind a frontend: the frontend's counters are used"
    ]
    assert report.rows_kept > both.rows_kept


def test_unusable_answers_are_findings_and_the_rest_lands(tmp_path: Path) -> None:
    folder = tmp_path / "mine.metrics"
    folder.mkdir()
    for name, text in (
        ("a.json", "<html>log in</html>"),
        ("b.json", '{"status": "error", "errorType": "timeout", "error": "query timed out"}'),
        ("c.json", '{"status": "success", "data": {"resultType": "vector", "result": []}}'),
        ("d.json", ""),
        ("e.json", json.dumps(answer([{"metric": {}, "values": [[1, "2"]]}]))),
        ("f.json", json.dumps(answer([{"metric": {"__name__": "vllm:prompt_tokens_total"}}]))),
        ("g.json", json.dumps({**answer([]), "warnings": 5})),
    ):
        (folder / name).write_text(text)
    lake = Lake(tmp_path / "lake")
    with pytest.raises(
        IngestError, match=r"mine.metrics has no sample of a metric that .* knows: a.json is no JSON"
    ) as caught:
        land_metrics(folder, lake, CATALOGUE)
    assert str(caught.value).endswith("or delete the folder: what it has is not downloaded again.")
    assert "\n" not in str(caught.value)
    lake, report = land(tmp_path, series(process(1), {"instance": "a"}))
    assert report.rows_kept > 10_000
    found = " | ".join(find_details(lake, "answers") + find_details(lake, "other metrics"))
    for text in (
        "a.json is no JSON answer",
        "b.json is an error: timeout, query timed out",
        "c.json is a vector",
        "d.json is no JSON answer: it is empty",
        "rate() and increase() drop it",
        "f.json has a series that is not as Prometheus",
    ):
        assert text in found
    (tmp_path / "mine.toml").write_text('labels = { region = "instance" }')
    with pytest.raises(
        IngestError, match=r"the label instance=a is no region of the catalogue \(.*label_names"
    ):
        land_metrics(folder, lake, CATALOGUE)


PROMPTS, REQUESTS = "vllm:prompt_tokens_total", "vllm:time_to_first_token_seconds_count"


def spoil(parts: list[dict[str, Any]], metric: str, at: int, value: float) -> None:
    """Set one reading of the first counter of a metric."""
    spoilt = next(part for part in parts if part["metric"]["__name__"] == metric)
    spoilt["values"][at][1] = str(value)


@pytest.mark.parametrize("value", [1e308, 1e20, 1e15, -1e308])
@pytest.mark.parametrize(
    ("metric", "at"),
    [(name, at) for name in (PROMPTS, REQUESTS, "vllm:request_prompt_tokens_bucket") for at in (0, -1)],
)
def test_a_counter_that_no_engine_has_is_refused_with_the_way_out(
    tmp_path: Path, metric: str, value: float, at: int
) -> None:
    """The first reading of a process that began since, or the last one: bounded memory and one line."""
    parts = series(process(1, first_s=7200.0), {"instance": "a"}, t=T[120:])
    spoil(parts, metric, at, value)
    parts += series(process(2), {"instance": "b"})
    if metric == REQUESTS and at == 0 and value > 0:  # as of a process that ran long before
        assert land(tmp_path, parts)[1].rows_kept > 10_000
        return
    rule = r"grows by -?1e\+\d+ in the [\d,]+ s before 2025-07-02 .* UTC, must be 0 to "
    with pytest.raises(IngestError, match=rf"^mine\.metrics: {metric} {rule}") as caught:
        land(tmp_path, parts)
    assert str(caught.value).endswith("or delete the folder: each ingest refuses it until then.")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("per_s", [10_000, 10_001])
def test_the_fastest_counter_of_requests_that_is_read(tmp_path: Path, per_s: int) -> None:
    """So many requests a second, for a minute; the rule has the instant and the limit."""
    served = process(1, last_s=3600.0)
    parts = series(served, {"instance": "a"}, t=T[:61])
    before = int((served.arrived + served.ttft_s <= T[59]).sum())
    spoil(parts, REQUESTS, -1, float(before + 60 * per_s))
    if per_s == 10_000:
        assert land(tmp_path, parts)[1].rows_kept == before + 600_000
        return
    rule = (
        r"grows by 600,060 in the 60 s before 2025-07-02 01:00:00 UTC, must be 0 to 600,000: .* than 10,000 a"
    )
    with pytest.raises(IngestError, match=rule):
        land(tmp_path, parts)


def test_metrics_with_logs_are_refused_with_the_remedy(tmp_path: Path) -> None:
    """Requests that logs and metrics both contain would count twice."""
    part = series(process(1, last_s=600), {"instance": "a"}, T[:12])
    lake, _ = land(tmp_path, part)
    (tmp_path / "log.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2025-07-02 10:00:00,5,5\n")
    (tmp_path / "log.toml").write_text('trace = "both"')
    ingest_file(tmp_path / "log.csv", lake, CATALOGUE)
    (tmp_path / "mine.toml").write_text('trace = "both"')
    with pytest.raises(
        IngestError, match=r"would land in the trace 'both' next to log.csv: .* forget log.csv"
    ):
        land_metrics(tmp_path / "mine.metrics", lake, CATALOGUE)
    (tmp_path / "log.toml").write_text('trace = "mine"')
    with pytest.raises(IngestError, match=r"next to mine.metrics"):
        ingest_file(tmp_path / "log.csv", lake, CATALOGUE)
    (tmp_path / "one.json").write_text(json.dumps(answer(part)))
    with pytest.raises(
        IngestError, match=r"one.json is an answer of Prometheus. Put all answers of a trace into"
    ):
        ingest_file(tmp_path / "one.json", lake, CATALOGUE)


def test_requests_are_of_the_model_that_a_mapping_names(tmp_path: Path) -> None:
    """Of metrics by the name of the process, and of a log without names by the share of all."""
    part = series(process(1, last_s=600), {"instance": "a", "model_name": "team"}, T[:12])
    lake, metered = land(tmp_path, part, mapping='llm_names = { team = "Qwen/Qwen3-8B" }')
    (tmp_path / "log.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2025-07-02 10:00:00,5,5\n")
    (tmp_path / "log.toml").write_text('llm = "Qwen/Qwen3-32B"')
    assert ingest_file(tmp_path / "log.csv", lake, CATALOGUE).reasons == {}
    found = lake.sql("select llm, count(*)::int as n from requests group by llm").to_pylist()
    assert {row["llm"]: row["n"] for row in found} == {
        "Qwen/Qwen3-8B": metered.rows_kept,
        "Qwen/Qwen3-32B": 1,
    }


def test_a_changed_trace_moves_the_folder(tmp_path: Path) -> None:
    """Its requests are in one trace, even if the move was interrupted before the old trace was left."""
    part = series(process(1, last_s=3600), {"instance": "a"}, T[:121])
    lake, first = land(tmp_path, part)
    kept = tmp_path / "kept"
    shutil.copytree(lake.root, kept)
    lake, moved = land(tmp_path, part, mapping='trace = "other"\ntier = "iw_fast"\nregion = "east"')
    assert (moved.is_new, moved.moved_from, moved.rows_kept) == (True, ("mine",), first.rows_kept)
    assert lake.count("requests") == lake.count("requests", trace="other") == first.rows_kept
    for table in ("ingests", "metric_findings", "engine_histograms"):
        assert {row["trace"] for row in lake.sql(f"select trace from {table}").to_pylist()} == {"other"}
    shutil.copytree(kept, lake.root, dirs_exist_ok=True)
    assert lake.count("requests") == 2 * first.rows_kept
    again = land_metrics(tmp_path / "mine.metrics", Lake(lake.root), CATALOGUE)
    assert (again.is_new, again.moved_from) == (False, ("mine",))
    assert Lake(lake.root).count("requests") == first.rows_kept


@pytest.mark.parametrize("seed", range(5))
def test_two_balanced_processes_are_never_merged(seed: int) -> None:
    """They alternate and get the same requests to within one; their tokens drift apart all the same."""
    rng = np.random.default_rng(seed)
    n, minutes = 20, 600
    t = np.arange(minutes) * 60.0
    requests = np.arange(minutes) * float(n)
    tokens = [np.cumsum(np.ceil(rng.lognormal(6, 0.8, (minutes, n))).sum(axis=1)) for _ in range(2)]
    apart = {key: (t, requests + key) for key in (0, 1)}, {key: (t, tokens[key]) for key in (0, 1)}
    assert find_duplicate_processes(*apart) == []
    late = np.concatenate([tokens[0][:1], (tokens[0][1:] + tokens[0][:-1]) // 2])
    assert find_duplicate_processes(apart[0], {0: (t, tokens[0]), 1: (t, late)}) == [{0, 1}]


@pytest.mark.parametrize("seed", range(3))
def test_generated_lengths_keep_sums_and_buckets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bounds = np.array([1, 10, 100, 1000, 10_000, np.inf])
    true = np.ceil(rng.lognormal(5, 1.5, 20_000))
    requests = np.bincount(rng.integers(0, 50, true.size), minlength=60)
    tokens = np.array([int(part.sum()) for part in np.split(true, np.cumsum(requests)[:-1])])
    cumulative = np.array([(true <= bound).sum() for bound in bounds], float)
    cells = length_cells(bounds)
    shape = LengthHistogram(cells, spread_histogram(bounds, cumulative, cells)[None])
    mended = shift_means(shape, bounds, np.array([true.mean()]))
    of_bucket = np.add.reduceat(mended.counts[0], np.searchsorted(cells, [0.5, 1, 10, 100, 1000, 10_000]))
    assert of_bucket == pytest.approx(np.diff(cumulative, prepend=0.0), rel=1e-6, abs=1e-6)
    assert mended.counts @ ((cells[1:] + cells[:-1]) / 2) / true.size == pytest.approx(
        [true.mean()], rel=0.01
    )
    rows = np.zeros(requests.size, np.int64)
    drawn = draw_lengths(rng, LengthHistogram(cells, mended.counts[rows]), requests, tokens)
    assert drawn.min() >= 1
    assert [int(part.sum()) for part in np.split(drawn, np.cumsum(requests)[:-1])] == tokens.tolist()
    ranks = [(drawn <= bound).mean() for bound in bounds[1:-1]]
    assert ranks == pytest.approx(cumulative[1:-1] / true.size, abs=0.03)


def test_labels_and_cache_hits_reach_their_columns(tmp_path: Path) -> None:
    """A region and a tier by labels and their names; a quarter, then half of the prompt tokens were cached.

    The cache's counters have another name from the fourth hour on, in the same process.
    """
    served, cut = process(1), MIDNIGHT + 10_800
    labels = {"instance": "a", "cluster": "eu-1", "priority": "iw_normal"}
    found = series(served, labels)
    grown = next(one for one in found if one["metric"]["__name__"] == "vllm:prompt_tokens_total")["values"]
    before, after = ([(t, float(v)) for t, v in grown if (t > cut) == is_after] for is_after in (False, True))
    for prefix, part, share in (("gpu_prefix", before, 0.25), ("prefix", after, 0.5)):
        t, value = (np.array(column) for column in zip(*part, strict=True))
        value -= value[0]
        for name, of in (("hits", share), ("queries", 1.0)):
            metric = {"model_name": MODEL, **labels}
            found.append(results(metric, f"vllm:{prefix}_cache_{name}_total", None, t, np.floor(of * value)))
    mapping = (
        'labels = { region = "cluster", tier = "priority" }\nlabel_names = { "eu-1" = "west" }\napp = "code"'
    )
    lake, _ = land(tmp_path, found, mapping=mapping)
    kinds = lake.sql(
        "select distinct region, tier, tier_source, app, llm, source_llm from requests"
    ).to_pylist()
    assert [tuple(kind.values()) for kind in kinds] == [("west", "iw_normal", "given", "code", MODEL, MODEL)]
    cached = lake.sql(
        "select hour(arrived_at) as h, sum(cached_tokens) / sum(input_tokens) as s from requests "
        "group by h order by h"
    )["s"].to_pylist()
    assert cached == pytest.approx([0.25, 0.25, 0.25, 0.5, 0.5, 0.5], abs=0.01)
    assert find_details(lake, "renamed")[0].startswith(
        "note: vllm:gpu_prefix_cache_hits_total: read while its newer name"
    )
