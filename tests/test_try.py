"""`fleetcast try`: a file on named fleets, counted once more; what is no fleet is refused in one line."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from engine_counters import Served, answer, counters, results
from typer.testing import CliRunner

from fleetcast.assets.advice import import_trace
from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies import try_fleet
from fleetcast.models.replay.kernel_inputs import TraceArrays
from fleetcast.models.replay.run import Schedule, replay_trace
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import fixed_fleet
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.mechanisms import Ending
from fleetcast.models.world.prices import price_by_provider
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines.cli import cli_app

CATALOGUE = load_catalogue().of_era("2023", "here")
OFFICE = load_config("sageserve", CATALOGUE)
SMALL, LARGE = "4 x llama3.1-8b@h100-80gb", "2 x llama2-70b@4xh100-80gb"


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """An hour of a service."""
    rng, size = np.random.default_rng(5), 4000
    at_us = np.sort(rng.integers(0, 3_600_000_000, size))
    n = np.arange(size)
    return pd.DataFrame(
        {
            "request_id": n.astype(np.uint64),
            "arrived_at": pd.Timestamp("2025-03-03T10:00", tz="UTC") + pd.to_timedelta(at_us, unit="us"),
            "llm": np.where(n % 4 == 0, "llama2-70b", "llama3.1-8b"),
            "tier": np.where(n % 3 == 0, "iw_normal", "iw_fast"),
            "input_tokens": rng.integers(1, 4000, size).astype(np.int32),
            "output_tokens": rng.integers(1, 400, size).astype(np.int32),
        }
    )


@pytest.fixture(scope="module")
def file(rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("try") / "service.parquet"
    rows.to_parquet(path)
    return path


@pytest.fixture(scope="module")
def requested(file: Path, tmp_path_factory: pytest.TempPathFactory) -> try_fleet.TryRequests:
    return try_fleet.read_file_requests(file, CATALOGUE, tmp_path_factory.mktemp("scratch"), Progress())


@pytest.mark.parametrize(
    ("fleet", "message"),
    [
        (
            "8 llama3.1-8b@h100-80gb",
            "'8 llama3.1-8b@h100-80gb' is not a pool. Write COUNT x LLM@GPU, like 8 x",
        ),
        ("0 x llama3.1-8b@h100-80gb", "has no instance. Give it one or more."),
        ("8 x llama3.1-9b@h100-80gb", "unknown llm 'llama3.1-9b'. Did you mean 'llama3.1-8b'?"),
        ("8 x llama3.1-8b@h100", "unknown gpu 'h100'. Did you mean 'h100-80gb'?"),
        (
            "8 x llama3.1-8b@3xh100-80gb",
            "llama3.1-8b on 3 x h100-80gb: tensor_parallel must divide the 32 heads",
        ),
        (f"{SMALL} + {SMALL}", "llama3.1-8b is named twice. Give it one pool."),
    ],
)
def test_what_is_no_fleet_is_refused_in_one_line(file: Path, fleet: str, message: str) -> None:
    result = CliRunner().invoke(cli_app, ["try", str(file), "--on", fleet])
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_fleet_must_serve_every_requested_llm(requested: try_fleet.TryRequests) -> None:
    fleet = "1 x bloom-176b@h100-80gb + 4 x llama3.1-8b@h100-80gb"
    with pytest.raises(ConfigError, match=r"has no llama2-70b, which 1,000 requests need. Add it, or name"):
        try_fleet.run_fleet_trial(
            fleet, try_fleet.parse_fleet(fleet, CATALOGUE, OFFICE), requested.rows, CATALOGUE, OFFICE
        )


def test_saved_metrics_run_like_a_file_and_other_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "mine.metrics"
    folder.mkdir()
    arrived = 1_751_414_400 + np.sort(np.random.default_rng(2).uniform(60, 3540, 900))
    own = Served(arrived, np.full(900, 700.0), np.full(900, 50.0), np.full(900, 0.1), np.full(900, 1.5))
    t = 1_751_414_400 + np.arange(0, 3901, 60.0)
    found = counters(own, t, t[::60])
    labels = {"model_name": "llama2-70b", "instance": "10.0.0.1:8000"}
    (folder / "0.json").write_text(json.dumps(answer([results(labels, *one) for one in found])))
    result = CliRunner().invoke(cli_app, ["try", str(folder), "--on", LARGE, "--quiet"])
    assert result.exit_code == 0, result.output
    assert re.search(r"prometheus: 900 requests in 0\.9\d h, sampled from the metrics", result.output)
    result = CliRunner().invoke(cli_app, ["try", str(tmp_path), "--on", LARGE])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "is a folder. Name a trace file in it; saved answers of a Prometheus server" in result.stderr


def test_an_llm_stands_on_as_few_gpus_as_hold_it() -> None:
    degrees = {
        text: try_fleet.parse_fleet(f"1 x {text}", CATALOGUE, OFFICE)[0].deployment.tensor_parallel
        for text in ("llama3.1-8b@h100-80gb", "llama2-70b@h100-80gb", "bloom-176b@h100-80gb")
    }
    assert list(degrees.values()) == [1, 2, 8]


def test_figures_are_those_of_the_requests(requested: try_fleet.TryRequests) -> None:
    """Two llms on a fleet of both: each request goes to its own; all is counted once more."""
    text = f"{SMALL} + {LARGE}"
    pools = try_fleet.parse_fleet(text, CATALOGUE, OFFICE)
    both = try_fleet.run_fleet_trial(text, pools, requested.rows, CATALOGUE, OFFICE)
    alone = {
        llm: try_fleet.run_fleet_trial(
            one,
            try_fleet.parse_fleet(one, CATALOGUE, OFFICE),
            requested.rows[requested.rows["llm"] == llm],
            CATALOGUE,
            OFFICE,
        )
        for llm, one in (("llama3.1-8b", SMALL), ("llama2-70b", LARGE))
    }
    for llm, one in alone.items():
        shift_s = requested.rows.loc[requested.rows["llm"] == llm, "arrival_s"]
        assert shift_s.iloc[0] >= 0
        own = both.ttft_s[(requested.rows["llm"] == llm).to_numpy()]
        np.testing.assert_allclose(own, one.ttft_s, rtol=1e-9)
    fast = (requested.rows["tier"] == "iw_fast").to_numpy()
    assert both.row["iw_fast_attainment_share"] == pytest.approx((both.ttft_s[fast] <= 1.0).mean())
    assert both.row["ttft_p95_s"] == pytest.approx(np.quantile(both.ttft_s, 0.95))
    hours = (requested.rows["arrival_s"].iloc[-1] + 1.0) / 3600
    assert both.row["gpus"] == 4 * 1 + 2 * 4
    assert both.row["gpu_hours"] == pytest.approx(12 * hours)
    assert both.row["usd"] == pytest.approx(12.29 * 12 * hours)
    assert (both.row["refused"], both.row["unfinished"]) == (0, 0)


def test_one_llm_takes_all_and_fewer_instances_are_later(requested: try_fleet.TryRequests) -> None:
    rows = [
        try_fleet.run_fleet_trial(
            text, try_fleet.parse_fleet(text, CATALOGUE, OFFICE), requested.rows, CATALOGUE, OFFICE
        ).row
        for text in ("8 x llama2-70b@h100-80gb", "2 x llama2-70b@h100-80gb", "1 x llama2-70b@h100-80gb")
    ]
    for name in ("ttft_p95_s", "e2e_p50_s"):
        assert rows[0][name] < rows[1][name] < rows[2][name]
    assert rows[0]["gpus"] == 16


def test_a_newcomer_sees_a_board_and_a_figure_and_the_lake_stays_as_it_is(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(Lake().root.rglob("*service*"))
    result = CliRunner().invoke(cli_app, ["try", str(file), "--on", SMALL, "--on", LARGE, "--quiet"])
    assert result.exit_code == 0, result.output
    assert "4,000 requests in 1.00 h, 0 rows left out" in result.output
    assert len(re.findall(r"^(?:4|2) x llama", result.output, re.MULTILINE)) >= 2
    assert (tmp_path / "service.parquet.png").stat().st_size > 10_000
    assert sorted(Lake().root.rglob("*service*")) == before


def test_a_file_is_read_and_priced_as_advise_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests without a tier are of the strictest one; the prices are those of one provider."""
    monkeypatch.chdir(tmp_path)
    at = pd.Timestamp("2024-05-10") + pd.to_timedelta(np.arange(300.0), unit="s")
    own = pd.DataFrame({"TIMESTAMP": at, "ContextTokens": 500, "GeneratedTokens": 20})
    own.to_csv("own.csv", index=False)
    current = load_catalogue()
    report = try_fleet.read_file_requests(tmp_path / "own.csv", current, tmp_path / "scratch", Progress())
    imported = import_trace.import_trace_file(
        tmp_path / "own.csv", tmp_path / "page", current, "llama3.1-8b", Progress()
    )
    advised = imported.lake.sql("select tier from requests order by arrived_at")["tier"].to_pylist()
    assert report.rows["tier"].tolist() == advised == ["iw_fast"] * 300
    fleet, usd = "3 x llama3.1-8b@h100-80gb", {}
    for options in ((), ("--provider", "aws"), ("--config", "office")):
        result = CliRunner().invoke(cli_app, ["try", "own.csv", "--fleet", fleet, "--quiet", *options])
        assert result.exit_code == 0, result.output
        [usd[options]] = re.findall(
            r"(?:oci|aws).* (\d+\.\d\d) USD per h100|prices of office.toml", result.stderr
        )
        assert "tier iw_fast for 300 requests whose tier the file does not have" in result.stderr
        assert "prices of" not in result.stdout
    advice = price_by_provider(current, ["h100-80gb"])
    assert list(usd.values()) == ["10.00", "8.26", ""]
    assert advice.catalogue.gpus["h100-80gb"].usd_per_hour == 10.0
    assert (tmp_path / "own.csv.png").is_file()


def test_refused_rows_are_mended_in_the_folder_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own.csv"
    lines = [f"2025-03-01 00:00:{n:02d},5,6,{('east', 'fra')[n % 2]}" for n in range(40)]
    path.write_text("\n".join(["timestamp,input_tokens,output_tokens,region", *lines]))
    command = ["try", str(path), "--fleet", "1 x llama3.1-8b@h100-80gb", "--quiet"]
    result = CliRunner().invoke(cli_app, command, env={"COLUMNS": "300"})
    assert f'(label_names = {{ "fra" = "east" }} in {tmp_path}/own.toml)' in " ".join(result.output.split())


def test_a_file_of_unknown_tiers_runs_with_the_line_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied as it is, the line keeps every request, and two tiers stay two."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own.csv"
    lines = [f"2025-03-01 00:00:{n:02d},5,6,{('silver', 'silver', 'gold')[n % 3]}" for n in range(60)]
    path.write_text("\n".join(["timestamp,input_tokens,output_tokens,tier", *lines]))
    command = ["try", str(path), "--fleet", "1 x llama3.1-8b@h100-80gb", "--quiet"]
    result = CliRunner().invoke(cli_app, command)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    found = re.search(r"Map them \((label_names = .+) in (\S+)\), or add", result.stderr)
    assert found is not None, result.stderr
    Path(found[2]).write_text(found[1])
    mended = try_fleet.read_file_requests(path, CATALOGUE, tmp_path / "scratch", Progress())
    assert sorted(mended.rows["tier"].value_counts()) == [20, 40]
    assert CliRunner().invoke(cli_app, command).exit_code == 0


def test_percentiles_count_refused_requests_as_the_longest(requested: try_fleet.TryRequests) -> None:
    """One request in ten is too long for any instance: the median is known, the 95th percentile is not."""
    small = requested.rows[requested.rows["llm"] == "llama3.1-8b"].head(200).copy()
    small.loc[small.index[::10], "input_tokens"] = 2_000_000
    played = try_fleet.run_fleet_trial(
        SMALL, try_fleet.parse_fleet(SMALL, CATALOGUE, OFFICE), small, CATALOGUE, OFFICE
    )
    assert played.row["refused"] == 20
    for name in ("ttft", "e2e"):
        assert 0 < played.row[f"{name}_p50_s"] < np.inf
        assert np.isnan(played.row[f"{name}_p95_s"])


def test_the_requests_are_those_of_the_file(rows: pd.DataFrame, requested: try_fleet.TryRequests) -> None:
    """Arrivals from the first one on, tokens as they stand there; replayed once more next to the command."""
    arrival_s = (rows["arrived_at"] - rows["arrived_at"].iloc[0]).dt.total_seconds().to_numpy()
    np.testing.assert_allclose(requested.rows["arrival_s"], arrival_s, atol=2e-6)
    for name in ("llm", "tier", "input_tokens", "output_tokens"):
        assert requested.rows[name].tolist() == rows[name].tolist()
    pools = try_fleet.parse_fleet(SMALL, CATALOGUE, OFFICE)
    alone = dataclasses.replace(CATALOGUE, llms={"llama3.1-8b": CATALOGUE.llms["llama3.1-8b"]})
    fleet = fixed_fleet({"llama3.1-8b": [(pools[0].deployment, 4)]}, alone, OFFICE)
    zero_ids = np.zeros(len(rows), np.int16)
    tier = np.where(
        rows["tier"] == "iw_fast", *(list(CATALOGUE.tiers).index(n) for n in ("iw_fast", "iw_normal"))
    )
    tokens = (rows[name].to_numpy(np.int32) for name in ("input_tokens", "output_tokens"))
    trace = TraceArrays(arrival_s, zero_ids, zero_ids, tier.astype(np.int16), *tokens)
    rules = make_rules(CATALOGUE, OFFICE.replay, "follow")
    own = replay_trace(trace, fleet, Schedule([[4]], hour_s=4000.0), rules, 3600.0)
    assert (own.status == Ending.FINISHED).all()
    played = try_fleet.run_fleet_trial(SMALL, pools, requested.rows, CATALOGUE, OFFICE)
    np.testing.assert_allclose(played.ttft_s, own.first_token_s - trace.arrival_s, atol=1e-4)


def test_the_prefix_cache_is_what_the_file_says() -> None:
    """Recorded hits first, then hashes of blocks of the config's size; a config's own cache stays."""

    def rows(cached: list[int | None], blocks: list[int]) -> pd.DataFrame:
        hashes = [[7] * count if count else None for count in blocks]
        return pd.DataFrame(
            {"input_tokens": [4096, 2048], "cached_tokens": pd.Series(cached), "prefix_hashes": hashes}
        )

    nothing, blocks = [None, None], [8, 4]
    for cached, counts, prefix, message in (
        ([2048, None], blocks, "given", "hits as the file has them, 33% of the input tokens"),
        (nothing, blocks, "blocks", "by the file's prefix hashes"),
        (nothing, [256, 128], "none", "blocks have some 16 tokens, [fleet] prefix_block_tokens is 512"),
        (nothing, [2, 0], "none", ""),
        ([0, 0], [0, 0], "none", ""),
    ):
        config, line = try_fleet.with_prefix_of_file(OFFICE, rows(cached, counts))
        assert config.fleet.prefix == prefix
        assert message in line
        assert bool(message) == bool(line)
    own = dataclasses.replace(OFFICE, fleet=dataclasses.replace(OFFICE.fleet, prefix="blocks"))
    assert try_fleet.with_prefix_of_file(own, rows([2048, None], blocks)) == (own, "")


def test_the_recorded_hits_of_a_file_are_used_unless_the_command_refuses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, reused = Path(__file__).parent / "traces" / "copilot_agent.jsonl", []
    for options in ((), ("--prefix", "none")):
        command = ["try", str(file), "--fleet", SMALL, "--quiet", *options]
        result = CliRunner().invoke(cli_app, command, env={"COLUMNS": "300"})
        assert result.exit_code == 0, result.stderr
        reused.append(
            "prefix cache  hits as the file has them" in result.output and "reused %" in result.output
        )
    assert reused == [True, False]
