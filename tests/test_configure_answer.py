"""The answer of `fleetcast configure`: its files against `try`, its lines, and other tools."""

import dataclasses
import json
import os
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from engine_market import (
    CATALOGUE,
    GPUS,
    OFFICE,
    fewest_by_counting,
    priced,
    score_of,
    traffic_of,
    window,
    with_tpot_target,
)
from typer.testing import CliRunner

from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.studies import configure_answer, configure_limits, try_fleet
from fleetcast.assets.studies.configure_explanation import describe_change, explain_answer
from fleetcast.assets.studies.configure_files import render_commands, render_kubernetes, score_fields
from fleetcast.assets.studies.configure_traffic import ConfigureTraffic, read_lake_hours
from fleetcast.assets.studies.engine_commands import describe_point, engine_commands
from fleetcast.assets.traces.landing import land_file
from fleetcast.models.configure import engine_points, fleet_trials, point_search
from fleetcast.models.configure.engine_points import EnginePoint, EngineSettings, EngineShape, EngineVariant
from fleetcast.models.configure.fleet_trials import TrafficWindow
from fleetcast.models.world.engine_answers import ANSWER_VERSION
from fleetcast.models.world.project_paths import HOME
from fleetcast.pipelines.cli import cli_app


@pytest.fixture(scope="module")
def market() -> engine_points.EngineMarket:
    return priced("fp8")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Half an hour of a service."""
    return write_trace(window(1500, 900.0, seed=4), tmp_path_factory.mktemp("configure") / "service.parquet")


def write_trace(part: TrafficWindow, path: Path) -> Path:
    """The requests of a window as a file."""
    trace = part.trace
    frame = pd.DataFrame(
        {
            "request_id": np.arange(trace.arrival_s.size).astype(np.uint64),
            "arrived_at": pd.Timestamp("2025-03-03T10:00", tz="UTC")
            + pd.to_timedelta((trace.arrival_s * 1e6).astype(int), unit="us"),
            "llm": "llama3.1-8b",
            "tier": np.where(trace.tier == 0, "iw_fast", "iw_normal"),
            "input_tokens": trace.input_tokens,
            "output_tokens": trace.output_tokens,
        }
    )
    frame.to_parquet(path)
    return path


def run_configure(
    monkeypatch: pytest.MonkeyPatch, folder: Path, source: Path | str | None, *options: str
) -> tuple[dict[str, Any], str]:
    """The answer of the command in a small space, and what it printed."""
    monkeypatch.chdir(folder)
    for name, values in (("BATCHES", (64, 256)), ("TOKEN_BUDGETS", (2048, 8192)), ("TENSOR_DEGREES", (1, 2))):
        monkeypatch.setattr(engine_points, name, values)
    trace = [] if source is None else ["--trace", str(source)]
    arguments = ["configure", "llama3.1-8b", *trace, "--gpus", "h100-80gb", *options]
    result = CliRunner().invoke(cli_app, [*arguments, "--quiet", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return json.loads((folder / "answer.json").read_text()), result.output


def try_fleet_toml(monkeypatch: pytest.MonkeyPatch, folder: Path, source: Path) -> dict[str, float]:
    """What the command in the first line of fleet.toml finds."""
    first, *_ = (folder / "fleet.toml").read_text().splitlines()
    words = [str(source) if word == "FILE" else word for word in shlex.split(first.removeprefix("# "))]
    return try_command_row(monkeypatch, words[1:])


def try_command_row(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> dict[str, float]:
    """The row of the one fleet of a `fleetcast try` command."""
    seen, run = list[dict[str, float]](), try_fleet.run_fleet_trial

    def noted(*arguments: object) -> try_fleet.FleetTrial:
        trial = run(*arguments)  # type: ignore[arg-type]
        seen.append(trial.row)
        return trial

    with monkeypatch.context() as patch:
        patch.setattr(try_fleet, "run_fleet_trial", noted)
        result = CliRunner().invoke(cli_app, [*words, "--quiet"])
    assert result.exit_code == 0, result.output
    [row] = seen
    return row


BASE = """
based_on = "office"
[trace]
name = "own"
first_day = 2025-07-01
days = 2
seed = 0
[fleet]
kv_memory_share = 0.5
frontend_s = 0.1
engines = ["earlier.json"]
[catalogue]
latency_source = "aiconfigurator-core"
[catalogue.tiers.iw_normal]
ttft_slo_s = 2.0
"""


@pytest.mark.parametrize(
    ("base", "options"),
    [
        ("office", ["--disaggregated", "--quality-floor", "fp8"]),
        ("office", ["--backends", "sglang,trtllm"]),
        ("sageserve", ["--colocated", "--ttft-slo-s", "0.12", "--tpot-slo-s", "0.02"]),
        (
            "path",
            [
                "--colocated",
                "--prices",
                "prices.toml",
                "--tpot-slo-s",
                "0.004",
                "--speculative-acceptance",
                "0.9,0.8,0.1",
                "--speculative-draft-s",
                "0.0001",
            ],
        ),
    ],
)
def test_try_replays_fleet_toml_at_the_same_cost(
    base: str, options: list[str], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With targets and prices of the command line, and a base that is no shipped config."""
    (tmp_path / "prices.toml").write_text("h100-80gb = 5.5")
    own = tmp_path / "configs" / "own.toml"
    own.parent.mkdir()
    own.write_text(BASE)
    fields = score_fields(score_of(ONE_GPU, 1))
    earlier = {"version": ANSWER_VERSION, "llm": "llama3.1-8b", "best": fields, "others": []}
    (own.parent / "earlier.json").write_text(json.dumps(earlier))
    config = str(own) if base == "path" else base
    answer, _ = run_configure(monkeypatch, tmp_path, file, "--config", config, *options)
    best, row = answer["best"], try_fleet_toml(monkeypatch, tmp_path, file)
    assert (best["backend"] == "vllm") == ("--backends" not in options)
    assert best["speculative_acceptance"] == ([0.9, 0.8] if base == "path" else [])
    rows = pd.read_parquet(file)
    tokens = int(rows["input_tokens"].sum() + rows["output_tokens"].sum())
    assert 1e6 * row["usd"] / tokens == pytest.approx(best["usd_per_million_tokens"])
    assert row["gpus"] == best["gpus"]
    for tier, share in best["attainment_share"].items():
        assert row[f"{tier}_attainment_share"] == share
    assert row["ttft_p95_s"] == pytest.approx(best["ttft_p95_s"])
    low, high = answer["usd_per_million_tokens_interval"]
    assert low <= 1.0001 * best["usd_per_million_tokens"] <= 1.0002 * high


def options_of(words: list[str]) -> dict[str, str]:
    """The options of a command by name; one without a value has the value yes."""
    pairs = zip(words, [*words[1:], "--"], strict=True)
    return {
        word: "yes" if value.startswith("--") else value for word, value in pairs if word.startswith("--")
    }


@pytest.mark.parametrize("prefix", ["none", "blocks"])
@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize("is_expert_parallel", [False, True])
def test_commands_of_every_backend_carry_every_setting(
    prefix: str, bits: int, is_expert_parallel: bool, market: engine_points.EngineMarket
) -> None:
    """All that a point sets, but its router, and the [fleet] keys that the replay used."""
    variant = EngineVariant(bits, 8 if bits < 16 else 16, is_expert_parallel)
    rates, draft_s = ((0.8, 0.5), 0.001 * (prefix == "none")) if bits == 16 else ((), 0.0)
    settings = EngineSettings(64, 4096, prefix, "least_kv", rates, draft_s)
    point = EnginePoint(variant, EngineShape("h100-80gb", 4, 2), settings)
    fleet = dataclasses.replace(OFFICE.fleet, kv_memory_share=0.83, kv_block_tokens=32)
    market = market._replace(config=dataclasses.replace(OFFICE, fleet=fleet))
    arch = CATALOGUE.llms["llama3.1-8b"]
    [command] = engine_commands("llama3.1-8b", arch, market, score_of(point, 3))
    vllm, sglang = (options_of(command.by_backend[name]) for name in ("vllm", "sglang"))
    *shell, script, _ = command.by_backend["trtllm"]
    assert shell == ["sh", "-c"]
    trtllm = json.loads(shlex.split(script)[1])
    weights, memory = arch.weight_bytes * bits / 16, 8 * 80 * 2**30
    assert trtllm == {
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 2,
        "max_batch_size": 64,
        "max_num_tokens": 4096,
        "enable_chunked_prefill": True,
        "kv_cache_config": {
            "free_gpu_memory_fraction": round((0.83 * memory - weights) / (memory - weights), 3),
            "enable_block_reuse": prefix == "blocks",
            "tokens_per_block": 32,
            "dtype": "fp8" if bits < 16 else "auto",
        },
        **({"moe_expert_parallel_size": 4} if is_expert_parallel else {}),
        **({"speculative_config": trtllm["speculative_config"]} if rates else {}),
    }
    pairs = {
        "--tensor-parallel-size": ("--tp-size", "4"),
        "--pipeline-parallel-size": ("--pp-size", "2"),
        "--max-num-seqs": ("--max-running-requests", "64"),
        "--max-num-batched-tokens": ("--chunked-prefill-size", "4096"),
        "--gpu-memory-utilization": ("--mem-fraction-static", "0.83"),
        "--block-size": ("--page-size", "32"),
        "--enable-expert-parallel": ("--ep-size", None if not is_expert_parallel else "4"),
        "--quantization": ("--quantization", "fp8" if bits == 8 else None),
        "--kv-cache-dtype": ("--kv-cache-dtype", "fp8" if bits < 16 else None),
        "--no-enable-prefix-caching": ("--disable-radix-cache", "yes" if prefix == "none" else None),
    }
    drafter = {"method": "eagle3", "model": "/path/to/drafter"} if draft_s else {"method": "ngram"}
    if rates:
        assert json.loads(vllm["--speculative-config"]) == {**drafter, "num_speculative_tokens": 2}
        assert sglang["--speculative-num-draft-tokens"] == "3"
        assert sglang.get("--speculative-draft-model-path") == drafter.get("model")
        method = {"decoding_type": "Eagle3", "speculative_model": "/path/to/drafter"}
        method = method if draft_s else {"decoding_type": "NGram"}
        assert trtllm["speculative_config"] == {**method, "max_draft_len": 2}
    assert ("--speculative-config" in vllm) == ("--no-async-scheduling" in vllm) == bool(rates)
    for name, (other, value) in pairs.items():
        assert vllm.get(name) == ("yes" if name == "--enable-expert-parallel" and value else value), name
        assert sglang.get(other) == ("fp8_e4m3" if other == "--kv-cache-dtype" and value else value), other
    model = "/path/to/llama3.1-8b-nvfp4" if bits == 4 else arch.model
    assert command.words == command.by_backend["vllm"]
    assert command.words[2] == sglang["--model-path"] == model
    made = {16: arch.model, 8: "/path/to/llama3.1-8b-fp8", 4: model}[bits]
    assert shlex.split(script)[shlex.split(script).index("serve") + 1] == made


def test_files_say_what_the_commands_do_not_set(market: engine_points.EngineMarket) -> None:
    """The checkpoint of fp4 weights and the router, in words; neither where it does not matter."""
    arch = CATALOGUE.llms["llama3.1-8b"]
    point = EnginePoint(
        EngineVariant(4, 8, False), EngineShape("h100-80gb", 1), EngineSettings(64, 4096, "none", "least_kv")
    )
    for bits, count in ((4, 2), (8, 1)):
        score = score_of(point._replace(variant=EngineVariant(bits, 8, False)), count)
        commands = engine_commands("llama3.1-8b", arch, market, score)
        for render in (render_commands, render_kubernetes):
            text = render(commands)
            comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
            assert ("a checkpoint of meta-llama/Meta-Llama-3.1-8B in this format" in comments) == (bits == 4)
            assert ("/path/to/llama3.1-8b-nvfp4" in text) == (bits == 4)
            assert ("least_kv, to the instance with the least used KV cache" in comments) == (count > 1)
            assert ("A plain Service spreads connections by chance" in comments) == (count > 1)


def test_pods_run_on_the_chosen_gpu_type_behind_the_chosen_router(market: engine_points.EngineMarket) -> None:
    arch = CATALOGUE.llms["llama3.1-8b"]
    settings = EngineSettings(64, 4096, "none", "round_robin")
    point = EnginePoint(EngineVariant(16, 16, False), EngineShape("h200-141gb", 2), settings)
    commands = engine_commands("llama3.1-8b", arch, market, score_of(point, 3))
    deployment, service = yaml.safe_load_all(render_kubernetes(commands))
    pod = deployment["spec"]["template"]
    [container] = pod["spec"]["containers"]
    assert pod["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    assert (deployment["spec"]["replicas"], container["resources"]["limits"]["nvidia.com/gpu"]) == (3, 2)
    assert container["command"] == [*commands[0].words, "--host", "0.0.0.0", "--port", "8000"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    for routing, mode in (("round_robin", "round-robin"), ("least_prefill", "kv")):
        apart = point._replace(
            settings=settings._replace(routing=routing), decode=EngineShape("b200-180gb", 1)
        )
        commands = engine_commands("llama3.1-8b", arch, market, score_of(apart, 3, 1))
        text = render_kubernetes(commands)
        [graph] = yaml.safe_load_all(text)
        services = graph["spec"]["services"]
        assert services["Frontend"]["envs"] == [{"name": "DYN_ROUTER_MODE", "value": mode}]
        assert ("Its mode kv is near, not equal" in text) == (mode == "kv")
        for role, product, count in (("prefill", "NVIDIA-H200", 3), ("decode", "NVIDIA-B200", 1)):
            worker = services[f"Vllm{role.capitalize()}Worker"]
            assert worker["extraPodSpec"]["nodeSelector"] == {"nvidia.com/gpu.product": product}
            assert worker["replicas"] == count
            assert (
                options_of(worker["extraPodSpec"]["mainContainer"]["args"])["--disaggregation-mode"] == role
            )


def test_engines_sh_starts_every_role_at_once(
    market: engine_points.EngineMarket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a vllm that ends only when the other role runs too; each has its own port and its own GPUs."""
    (tmp_path / "vllm").write_text(
        '#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" "$@" > "$RUNS/$CUDA_VISIBLE_DEVICES"\n'
        'for n in 1 2 3 4 5 6 7 8 9 10; do [ "$(ls "$RUNS" | wc -l)" = 2 ] && exit 0; sleep 0.2; done\n'
        'rm "$RUNS"/*\n'
    )
    (tmp_path / "vllm").chmod(0o755)
    runs = tmp_path / "runs"
    runs.mkdir()
    arch = CATALOGUE.llms["llama3.1-8b"]
    point = EnginePoint(
        EngineVariant(16, 16, False), EngineShape("h100-80gb", 2),
        EngineSettings(64, 4096, "none", "least_kv"), EngineShape("h100-80gb", 1),
    )  # fmt: skip
    score = score_of(point, 1, 1)
    commands = engine_commands("llama3.1-8b", arch, market, score)
    script = tmp_path / "engines.sh"
    script.write_text(render_commands(commands))
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["sh", str(script)], env={"PATH": path, "RUNS": str(runs)}, check=True, timeout=30)
    ports = {file.name: options_of(shlex.split(file.read_text()))["--port"] for file in runs.iterdir()}
    assert ports == {"0,1": "8000", "2": "8001"}


ONE_GPU = EnginePoint(
    EngineVariant(16, 16, False), EngineShape("h100-80gb", 1), EngineSettings(256, 8192, "none", "least_kv")
)


@pytest.mark.parametrize(
    ("requests", "tokens", "tpot_slo_s", "kv_memory_share", "causes"),
    [
        (3000, (4000, 2), None, 0.9, {"prefill"}),
        (1200, (2000, 400), None, 0.25, {"decode", "KV memory"}),
        (2000, (500, 300), 0.012, 0.9, {"prefill", "decode", "the TPOT target"}),
        (100, (500, 100), None, 0.9, set()),
    ],
)
def test_what_binds_is_what_lets_one_instance_fewer_attain(
    requests: int, tokens: tuple[int, int], tpot_slo_s: float | None, kv_memory_share: float, causes: set[str]
) -> None:
    """Prompts alone bind at prefill, a small cache at KV memory, a tight target at TPOT; or whole ones do."""
    fleet = dataclasses.replace(OFFICE.fleet, kv_memory_share=kv_memory_share)
    market = with_tpot_target(priced(), tpot_slo_s)
    market = market._replace(config=dataclasses.replace(OFFICE, fleet=fleet))
    arrival_s = np.random.default_rng(1).uniform(0, 60, requests)
    traffic = traffic_of(arrival_s, *(np.full(requests, n) for n in tokens))
    trials = point_search.FleetTrials(market, [traffic])
    best = point_search.fewest_attaining(trials, ONE_GPU)
    assert best is not None
    [limit] = configure_limits.find_limits(trials, best)
    assert set(limit.causes) == causes
    text = configure_limits.describe_limit(limit)
    assert f"{limit.steady:.2f} of {best.counts[0]} instances" in text
    assert text.startswith("whole instances bind" if not causes else " and ".join(limit.causes))


def test_a_changed_traffic_is_answered_as_by_every_count() -> None:
    """Twice the requests: the least of all points; the present point's own cost; their sentences."""
    market = with_tpot_target(priced(), 0.012)
    points = [ONE_GPU._replace(shape=EngineShape("h100-80gb", degree)) for degree in (4, 1, 2)]
    traffic = traffic_of(
        np.random.default_rng(1).uniform(0, 60, 1500), np.full(1500, 500), np.full(1500, 300)
    )
    middle = point_search.FleetTrials(market, [traffic])
    changed = configure_answer.try_change(middle, points, points[0], "traffic doubles", 2.0, 1.0)
    alone = point_search.FleetTrials(market, [fleet_trials.change_window(traffic, 2.0, 1.0)])
    costs = []
    for point in points:
        count = fewest_by_counting(alone, point)
        assert count is not None
        costs.append(alone.score(point, (count,)).usd_per_hour)
    assert changed.kept is not None
    assert changed.best is not None
    assert (changed.kept.usd_per_hour, changed.best.usd_per_hour) == (costs[0], min(costs))
    assert costs[0] > min(costs)
    cheapest = points[costs.index(min(costs))]
    same = configure_answer.try_change(middle, points, cheapest, "traffic doubles", 2.0, 1.0)
    assert same.best == same.kept == changed.best
    now = fewest_by_counting(middle, points[0])
    assert now is not None
    times = f"{min(costs) / middle.score(points[0], (now,)).usd_per_hour:.2f} times the USD per hour"
    more = f"{costs[0] / min(costs) - 1:.0%}"
    name = describe_point(changed.best.point)
    texts = (
        (
            changed,
            f"traffic doubles: {name} is the best, at {times}; the present one would cost {more} more.",
        ),
        (
            changed._replace(kept=None, present_usd_per_hour=None),
            f"traffic doubles: {name} is the best; the present one does not attain.",
        ),
        (
            changed._replace(kept=changed.best),
            f"traffic doubles: the same deployment stays the best, at {times}.",
        ),
        (changed._replace(best=None), "traffic doubles: no deployment of those compared attains every tier."),
    )
    for each, text in texts:
        assert describe_change(each) == text


def test_the_answer_says_what_the_second_best_and_the_defaults_lose() -> None:
    best = score_of(ONE_GPU, 2)._replace(usd_per_hour=10.0, usd_per_million_tokens=1.0, slack=0.01)
    best = best._replace(attained={"fast": 0.96, "batch": 0.995, "bulk": 0.99})
    other = ONE_GPU._replace(shape=EngineShape("h100-80gb", 4))
    dear = score_of(other, 1)._replace(usd_per_hour=12.5, usd_per_million_tokens=1.25, slack=0.05)
    equal = dear._replace(usd_per_hour=10.0, usd_per_million_tokens=1.0, slack=0.01)
    equal = equal._replace(attained={"fast": 0.96, "batch": 0.965, "bulk": 0.98})
    same = equal._replace(attained=dict(best.attained))
    query, name = configure_answer.ConfigureQuery("llama3.1-8b", GPUS), describe_point(other)
    for finalists, text in (
        ([best], "no other deployment on the whole hours is within half of its cost again."),
        ([best, dear], f"{name} costs 25% more."),
        (
            [best, equal],
            f"{name} costs as much; it attains 3.0 points less of batch, the tier in which it is furthest "
            "below the best.",
        ),
        ([best, same], f"{name} costs as much; it attains no less in any tier."),
    ):
        search = point_search.EngineSearch(finalists, finalists, [], 1, 1, 1)
        bounds = [0.5] * len(finalists)
        answer = configure_answer.EngineAnswer(query, priced(), search, bounds, (0.9, 1.1), 0.1, [], [], dear)
        lines = explain_answer(answer)
        assert f"second   {text}" in lines
        assert "defaults vLLM's defaults on h100-80gb cost 1.25 times as much." in lines
    lines = explain_answer(answer._replace(defaults=None))
    assert "defaults vLLM's defaults on h100-80gb attain with no number of instances." in lines


def test_the_answer_has_vllm_s_defaults_on_its_gpu_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fleetcast try` attains with as many instances and not with one fewer; a row names them."""
    file = write_trace(window(1500, 60.0, seed=4), tmp_path / "busy.parquet")
    answer, printed = run_configure(
        monkeypatch, tmp_path, file, "--quality-floor", "fp8", "--tpot-slo-s", "0.012"
    )
    found = answer["vllm_defaults"]
    settings = {
        "max_batch": 1024,
        "token_budget": 8192,
        "routing": "round_robin",
        "weight_bits": 16,
        "kv_bits": 16,
    }
    assert settings.items() <= found.items()
    [pool] = found["pools"]
    assert (pool["gpu"], pool["tensor_parallel"], pool["pipeline_parallel"]) == ("h100-80gb", 1, 1)
    fleet = ["--fleet", f"{pool['instances']} x llama3.1-8b@h100-80gb", "--config", "defaults.toml"]
    (tmp_path / "defaults.toml").write_text(
        BASE.split("[fleet]")[0]
        + "[fleet]\nmax_batch = 1024\nmax_prefill_tokens = 8192\nbatching = 'chunked'\n"
        "async_scheduling = true\n[replay]\nrouting = 'round_robin'\n"
        "[catalogue]\nlatency_source = 'aiconfigurator-core'\n"
        "[catalogue.tiers.iw_fast]\ntpot_slo_s = 0.012\n"
    )
    for more, attains in ((0, True), (-1, False)):
        fleet[1] = f"{pool['instances'] + more} x llama3.1-8b@1xh100-80gb"
        row = try_command_row(monkeypatch, ["try", str(file), *fleet])
        shares = {tier: row[f"{tier}_attainment_share"] for tier in found["attainment_share"]}
        assert (min(shares.values()) >= 0.95) == attains
        if attains:
            assert shares == found["attainment_share"]
    assert f"vLLM's defaults: {found['engine']}" in " ".join(printed.split())


def test_a_trace_of_the_lake_is_answered_as_its_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By name, or without a name where the lake has one trace; else one line that names them."""
    lake = Lake(tmp_path / "lake")
    monkeypatch.setattr("fleetcast.assets.lake.environment.LAKE", str(lake.root))
    result = CliRunner().invoke(cli_app, ["configure", "llama3.1-8b", "--quiet"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "No --trace is given, and the lake has no trace." in result.stderr
    land_file(file, lake, CATALOGUE)
    options = ["--colocated", "--tpot-slo-s", "0.02"]
    answers = []
    for source in (str(file), "canonical", None):
        answer, _ = run_configure(monkeypatch, tmp_path, source, *options)
        answers.append({key: answer[key] for key in ("best", "others", "vllm_defaults", "explanation")})
    assert answers[0] == answers[1] == answers[2]
    rows = pd.DataFrame({"TIMESTAMP": ["2025-03-03T09:00"], "ContextTokens": 5, "GeneratedTokens": 1})
    rows.to_csv(tmp_path / "azure.csv", index=False)
    land_file(tmp_path / "azure.csv", lake, CATALOGUE)
    result = CliRunner().invoke(cli_app, ["configure", "llama3.1-8b", "--quiet"])
    assert "the lake has 2 traces: azure_llm, canonical." in result.stderr


def test_an_llm_named_by_its_model_has_the_requests_of_the_catalogues(tmp_path: Path) -> None:
    """Of a trace with two llms; one without requests takes all, and a line says so."""
    rows = [f"2025-03-03T09:{n // 60:02d}:{n % 60:02d}Z,{100 + n},7,{llm}" for n in range(90)
            for llm in ("llama3.1-8b", "qwen3-32b")]  # fmt: skip
    path = tmp_path / "two.csv"
    path.write_text("\n".join(["timestamp,input_tokens,output_tokens,llm", *rows]))
    lake = Lake(tmp_path / "lake")
    land_file(path, lake, CATALOGUE)
    for name in ("llama3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"):
        [hour], note = read_lake_hours("log", name, 1, lake, CATALOGUE)
        assert (len(hour), set(hour["llm"]), note) == (90, {"llama3.1-8b"}, "")
    [hour], note = read_lake_hours("log", "llama3.1-70b", 1, lake, CATALOGUE)
    assert (len(hour), note) == (
        180,
        "log has no request for llama3.1-70b: those for all its llms are taken.",
    )


TOOL = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in --save-dir) folder=$2;; --serving-mode) way=$2;; esac; shift; done
%s
"""
ROW = {
    "agg": "parallel,bs,tokens/s/gpu\\ntp2pp1dp1etp1ep1,100,900",
    "disagg": "(p)parallel,(d)parallel,(d)bs,tokens/s/gpu\\ntp1pp1dp1etp1ep1,tp2pp1dp1etp1ep1,100,900",
}


@pytest.fixture(scope="module")
def bench() -> dict[str, Any]:
    """The bench of this subject."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HOME / "tests" / "bench")
        return runpy.run_path(str(HOME / "tests" / "bench" / "configure.py"))


def advised(
    bench: dict[str, Any], folder: Path, way: str, script: str, kinds: list[EnginePoint]
) -> list[EnginePoint]:
    """The points that the bench reads from a command that runs this script."""
    tool = folder / "aiconfigurator"
    tool.write_text(TOOL % script)
    tool.chmod(0o755)
    traffic = ConfigureTraffic("bursts", [window(300, 60.0)], ("none",), ())
    [row] = bench["ask_aiconfigurator"](str(tool), "llama3.1-8b", "h100-80gb", way, traffic)
    assert row[4:6] == bench["mean_lengths"](traffic)
    return list(bench["advised_points"](row, kinds)) if row.rank else []


@pytest.mark.parametrize("way", ["agg", "disagg"])
def test_the_bench_replays_what_aiconfigurator_advises(
    way: str, bench: dict[str, Any], tmp_path: Path
) -> None:
    """Its shapes with both batches; no point is no advice of cost 0, and a failure is no missing point."""
    save = (
        'mkdir -p $folder/$way/top1; printf "%b" "ROW" > $folder/$way/best_config_topn.csv\n'
        'echo \'--max-num-seqs "1" --max-num-batched-tokens 2655 --max-num-seqs "300" '
        "--max-num-batched-tokens 512' > $folder/$way/top1/run_0.sh"
    )
    kinds = engine_points.list_kinds(priced(), 8000, ["none"])
    points = advised(bench, tmp_path, way, save.replace("ROW", ROW[way]), kinds)
    one, two = EngineShape("h100-80gb", 1), EngineShape("h100-80gb", 2)
    assert {point.shapes for point in points} == {(two,) if way == "agg" else (one, two)}
    assert [point.settings.max_batch for point in points] == [300, 100]
    assert {point.settings.token_budget for point in points} == {2655}
    assert {point.variant for point in points} == {EngineVariant(16, 16, False)}
    replicated = ROW[way].replace("dp1", "dp4")  # attention dp
    assert advised(bench, tmp_path, way, save.replace("ROW", replicated), kinds) == []
    if way == "agg":  # of a mixture, they are ranks that share split experts
        ranks = EnginePoint(
            EngineVariant(16, 16, False),
            EngineShape("h100-80gb", 2, data_parallel_size=4),
            engine_points.default_settings("none"),
        )
        points = advised(bench, tmp_path, way, save.replace("ROW", replicated), [ranks])
        assert {point.shape for point in points} == {ranks.shape}
    assert advised(bench, tmp_path, way, "exit 0", kinds) == []
    with pytest.raises(RuntimeError, match="no kernels"):
        advised(bench, tmp_path, way, "echo no kernels >&2; exit 1", kinds)


def test_the_bench_has_what_aiconfigurator_answered(
    bench: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All questions for the hour of conversations, in a file that is read as it was written."""
    lengths = (1155, 211)
    rows = bench["read_advice"](lengths)
    monkeypatch.setitem(bench["read_advice"].__globals__, "ADVICE", tmp_path / "advice.csv")
    bench["write_advice"](rows)
    assert bench["read_advice"](lengths) == rows
    bench["write_advice"]([row for row in rows if row.llm != "qwen3-8b"])
    with pytest.raises(RuntimeError, match=r"no answer for qwen3-8b. Set AICONFIGURATOR"):
        bench["read_advice"](lengths)


def test_a_comparison_without_a_cost_is_left_out_of_the_median(bench: dict[str, Any]) -> None:
    assert bench["median_compared"]([0.5, None, 0.9, None]) == pytest.approx(0.7)
    with pytest.raises(RuntimeError, match="with no llm"):
        bench["median_compared"]([None])
    trials = point_search.FleetTrials(with_tpot_target(priced(), 0.0005), [window(300, 60.0)])
    assert bench["race_points"](trials, [ONE_GPU], 0.0) == []


def refusals(file: Path) -> Iterator[tuple[list[str], str]]:
    """Options, and a part of the one line that refuses them."""
    few = file.parent / "few.parquet"
    pd.read_parquet(file).head(10).to_parquet(few)
    known = ["--trace", str(file)]
    yield ["llama3.1-8b", *known, "--gpus", "h100"], "unknown gpu 'h100'. Did you mean 'h100-80gb'?"
    yield ["llama3.1-9b", *known], "unknown llm 'llama3.1-9b'"
    yield (
        ["gpt-oss-20b", *known, "--quality-floor", "bf16"],
        "gpt-oss-20b has 4 bits a weight, the floor is 16",
    )
    for rates in ("0.5,0.7", "1.5", "half", ""):
        yield ["llama3.1-8b", *known, "--speculative-acceptance", rates], "from 0 to 1 that do not rise"
    yield ["llama3.1-8b", *known, "--speculative-draft-s", "0.001"], "needs --speculative-acceptance"
    yield ["llama3.1-8b", *known, "--quality-floor", "fp6"], "unknown quality floor 'fp6'"
    yield ["llama3.1-405b-fp8", *known, "--gpus", "l40s-48gb"], "fits nowhere on l40s-48gb"
    yield ["llama3.1-8b", "--trace", str(few)], "busiest hours have 10 requests, at least 200 are needed"
    yield ["llama3.1-8b", "--trace", "nothing"], "no such file, and no trace of this name in the lake"
    yield (
        ["llama3.1-8b", *known, "--gpus", "h100-80gb", "--colocated", "--ttft-slo-s", "0.002"],
        "attains every tier",
    )


def test_bad_input_is_refused_in_one_line(file: Path) -> None:
    for options, message in refusals(file):
        result = CliRunner().invoke(cli_app, ["configure", *options, "--quiet"])
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert message in result.stderr
