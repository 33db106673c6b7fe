"""The rule `compact` on a server's metrics, against what it decided in the replay that made them."""

import asyncio
import dataclasses
import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_parts import prometheus_of, served
from small import make_plans, small_config
from typer.testing import CliRunner

from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings, midnight
from fleetcast.assets.plans import keda_scaler, measured_capacity
from fleetcast.assets.plans.cluster_workloads import workload_names
from fleetcast.assets.plans.current_plan import CurrentPlan, ReplicaTarget, WorkloadKey
from fleetcast.assets.plans.hpa_steps import STEP_MINUTES
from fleetcast.assets.plans.keda_messages import MESSAGE_CLASSES
from fleetcast.assets.plans.keda_scaler import KedaScaler, recent_replicas
from fleetcast.assets.plans.observed_load_metrics import (
    RATE_S,
    ObservedLoad,
    pool_label,
    read_observed_load,
)
from fleetcast.assets.replays import compact_schedule, live_replicas, replays
from fleetcast.assets.replays.compact_schedule import CompactRule, largest_held, needed_instances
from fleetcast.assets.replays.live_replicas import SHOWN_STEPS, STALE_S, STEP, LiveReplicas
from fleetcast.assets.traces import prometheus_client
from fleetcast.assets.traces.ingest import LANDING_DIR
from fleetcast.assets.traces.trace_mapping import read_mapping
from fleetcast.models.world.own_policies import FleetObservation
from fleetcast.pipelines.cli import cli_app

DAY = date(2025, 7, 3)  # the last of the small config
HELD_S = 120.0
SERIES = dict[tuple[str, str, str], np.ndarray]  # (metric, region, llm or workload) -> values, one a step


class Day(NamedTuple):
    """A replayed day: what the policy observed, and the series that its engines export."""

    settings: RunSettings
    seen: list[FleetObservation]
    series: SERIES


def by_size(settings: RunSettings, _day: date, _progress: Progress, instances: int = 4) -> list[float]:
    return [100.0 * {1: 0.5, 2: 0.75, 4: 1.0}[instances]] * len(settings.grid.service_options)


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    folder = tmp_path_factory.mktemp("live")
    path = small_config(folder, requests_per_day="40_000.0", min_instances="0", policies='["compact"]')
    settings = load_settings(path, folder / "lake")
    seen: list[FleetObservation] = []
    plain = compact_schedule.own_schedule

    def watched(name: str, policy: Any, *of: Any) -> Any:
        def decide(observed: FleetObservation) -> Any:
            seen.append(observed)
            return policy.decide(observed)

        return plain(name, policy._replace(decide=decide), *of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measured_capacity, "measure_capacities", by_size)
        patch.setattr(measured_capacity, "MEASURED_SIZES", {})
        patch.setattr(compact_schedule, "own_schedule", watched)
        patch.setattr(
            compact_schedule, "pool_holds_s", lambda settings, *_: np.full(len(settings.grid.pools), HELD_S)
        )
        make_plans(settings, DAY, by_size)
        replays.replay_day(settings, DAY, ["compact"], Progress())
        yield Day(settings, seen, exported_series(settings, seen))


def exported_series(settings: RunSettings, seen: list[FleetObservation]) -> SERIES:
    """What vLLM and kube-state-metrics export every STEP from midnight on, for interactive requests."""
    steps = np.arange(len(seen))
    rows = settings.lake.sql(
        "select llm, served_region, input_tokens, epoch(arrived_at) - $midnight as arrived_s, ttft_s, held_s "
        "from outcomes where trace = $trace and day = $day and policy = 'compact' "
        "and ttft_s is not null and tier in ('iw_fast', 'iw_normal')",
        trace=settings.trace,
        day=DAY,
        midnight=midnight(DAY).timestamp(),
    ).to_pandas()
    series = SERIES()
    for (llm, region), of_engine in rows.groupby(["llm", "served_region"]):
        sent = of_engine["arrived_s"] + of_engine["held_s"].fillna(0.0)
        first = of_engine["arrived_s"] + of_engine["ttft_s"]
        for name, at, by in (
            ("vllm:prompt_tokens_total", first, of_engine["input_tokens"]),
            ("vllm:time_to_first_token_seconds_count", first, np.ones(len(of_engine))),
            ("sent", sent, np.ones(len(of_engine))),
        ):
            grown = np.bincount(np.ceil(at / STEP).astype(int), by, steps.size)[: steps.size]
            series[name, region, llm] = np.cumsum(grown)
        waiting = (
            series.pop(("sent", region, llm)) - series["vllm:time_to_first_token_seconds_count", region, llm]
        )
        series["vllm:num_requests_waiting", region, llm] = waiting
    for pool in range(len(settings.grid.pools)):
        region, llm, role, gpu, gpus = pool_label(settings.grid, pool)
        (name,) = workload_names([(llm, gpu, gpus, role)])
        ready = np.array([observed.serving[pool] for observed in seen])
        series["kube_deployment_status_replicas_ready", region, name] = ready
    return series


QUERIES: list[str] = []  # of the simple server


@contextmanager
def simple_server(day: Day, _folder: Path) -> Iterator[str]:
    """Answers the queries that are needed: sums of rates over steps, and of gauges."""

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        given = urllib.parse.parse_qs(urllib.parse.urlsplit(path).query)
        query, first, last = given["query"][0], *(int(given[name][0]) for name in ("start", "end"))
        QUERIES.append(query)
        at = np.arange(first, last + 1, STEP)
        steps = (at - round(midnight(DAY).timestamp())) // STEP
        label = re.search(r"by \(region, (\w+)\)", query)
        metric = re.search(r"\(([a-z_:]+)\{", query)
        over = re.search(r"\[(\d+)s\]", query)
        back = int(over[1]) // STEP if over else 0
        result = []
        for (name, region, of), values in day.series.items():
            if metric and label and name == metric[1] and (name[:4] == "kube") == (label[1] == "deployment"):
                there = steps >= back
                now = values[steps[there]]
                if over:
                    now = (now - values[steps[there] - back]) / int(over[1])
                pairs = [[int(t), str(v)] for t, v in zip(at[there], now, strict=True)]
                result.append({"metric": {"region": region, label[1]: of}, "values": pairs})
        return (
            200,
            {},
            json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode(),
        )

    with served(answer) as url:
        yield url


@contextmanager
def real_server(day: Day, folder: Path) -> Iterator[str]:
    """A real Prometheus with the day's series."""
    if shutil.which("promtool") is None:
        pytest.skip("there is no promtool here (Debian: apt install prometheus)")
    begins, lines = round(midnight(DAY).timestamp()), []
    for name in dict.fromkeys(metric for metric, _, _ in day.series):
        lines.append(f"# TYPE {name} gauge")
        for (metric, region, of), values in day.series.items():
            label = "deployment" if name.startswith("kube") else "model_name"
            if metric == name:
                lines += [
                    f'{name}{{region="{region}",{label}="{of}"}} {value} {begins + STEP * step}'
                    for step, value in enumerate(values)
                ]
    text = folder / "series.txt"
    text.write_text("\n".join([*lines, "# EOF", ""]))
    subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", text, folder / "tsdb"], check=True
    )
    with prometheus_of(folder, [], "--storage.tsdb.retention.time=100y") as url:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{url}/-/ready", timeout=5)
                break
            except OSError:
                time.sleep(0.1)
        yield url


SERVERS = {"simple": simple_server, "real": real_server}


class Clock:
    """A clock that a test sets."""

    at = midnight(DAY)

    def now(self) -> datetime:
        return self.at


def live_source(day: Day, url: str, clock: Clock) -> LiveReplicas:
    return LiveReplicas(CurrentPlan(day.settings, "day_ahead", clock.now), url, "", Progress())


def keys_of_pools(settings: RunSettings) -> list[WorkloadKey]:
    labels = (pool_label(settings.grid, pool) for pool in range(len(settings.grid.pools)))
    return [(region, llm, gpu, gpus, role) for region, llm, role, gpu, gpus in labels]


@pytest.mark.parametrize("server", SERVERS)
def test_the_answers_are_those_of_the_replay(day: Day, tmp_path: Path, server: str) -> None:
    """Rates are those of 90 s here and smoothed there, so single steps differ by an instance."""
    rule = live_replicas.measure_live_rule(day.settings, DAY, Progress())
    clock, keys, needed = Clock(), keys_of_pools(day.settings), []
    catch_up_s = day.settings.config.replay.catch_up_s
    for observed in day.seen:
        work = observed.arriving_tokens_per_s + observed.waiting_tokens / catch_up_s
        needed.append(needed_instances(work, observed.serving + observed.booting, rule))
    expected, found = [], []
    with SERVERS[server](day, tmp_path) as url:
        live = live_source(day, url, clock)
        for step in range(80, len(needed), 400):
            clock.at = midnight(DAY) + timedelta(seconds=STEP * step)
            live.refresh()
            answers = [live.replica_target(key, None) for key in keys]
            assert {answer.state for answer in answers} == {"measured"}
            found.append([answer.replicas for answer in answers])
            expected.append(largest_held(np.array(needed[:step][::-1]), rule.held_decisions))
    by_instance = np.array(found) - np.array(expected)
    assert (by_instance == 0).mean() > 0.9
    assert (np.abs(by_instance) <= 1).mean() > 0.99
    assert np.mean(found) == pytest.approx(np.mean(expected), rel=0.05)
    assert np.max(expected) > 5


def test_a_scaler_that_starts_again_gives_the_same_answers(day: Day, tmp_path: Path) -> None:
    """Its state is the server's: what one gives minutes later for then is what the other gave."""
    clock, other, keys = Clock(), Clock(), keys_of_pools(day.settings)
    rng, minutes = np.random.default_rng(1), STEP_MINUTES
    queues = {name: rng.integers(0, 9, len(day.seen)) for name in day.series if name[0].endswith("waiting")}
    with simple_server(day._replace(series=day.series | queues), tmp_path) as url:
        for step in range(80, len(day.seen), 600):
            clock.at = midnight(DAY) + timedelta(seconds=STEP * step)
            other.at = clock.at + timedelta(minutes=minutes)
            first, later = live_source(day, url, clock), live_source(day, url, other)
            first.refresh()
            later.refresh()
            for key in keys:
                assert recent_replicas(later, key, None)[minutes] == first.replica_target(key, None).replicas


def test_without_fresh_metrics_the_plan_applies_with_the_reason(
    day: Day, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_client, "WAIT_S", 0.01)
    clock, (key, *_) = Clock(), keys_of_pools(day.settings)
    clock.at = midnight(DAY) + timedelta(hours=12)
    with simple_server(day, tmp_path) as url:
        live = live_source(day, url, clock)
        live.plan.refresh()
        planned = live.plan.replica_target(key, None)
        assert planned.state == "planned"
        assert live.replica_target(key, None) == planned._replace(why="no metrics were read")
        live.refresh()
        assert live.replica_target(key, None).state == "measured"
    clock.at += timedelta(seconds=STALE_S)
    live.refresh()  # the server is away; what it gave is fresh enough
    assert live.replica_target(key, None).state == "measured"
    clock.at += timedelta(seconds=1)
    gone = live.replica_target(key, None)
    assert gone._replace(why="") == planned
    assert re.match(r"http://127.*answers nothing", gone.why)
    others = {name: values for name, values in day.series.items() if name[2] != "bloom-176b"}
    with simple_server(day._replace(series=others), tmp_path) as url:
        live = live_source(day, url, clock)
        live.refresh()
        states = {key[1]: live.replica_target(key, None) for key in keys_of_pools(day.settings)}
    assert states["bloom-176b"].why == f"no metrics of bloom-176b within {STALE_S} s"


@given(st.data())
def test_arrivals_are_what_was_prefilled_and_what_more_waits(data: st.DataObject) -> None:
    """A queue keeps its prompts: served in any order of time, the arrivals of each window are found."""
    arrived = np.array(data.draw(st.lists(st.integers(0, 50), min_size=12, max_size=40)), float)
    served_share = data.draw(st.floats(0.0, 1.0))
    waiting, prefilled = 0.0, []
    queue = []
    for more in arrived:
        waiting += more
        prefilled.append(np.floor(waiting * served_share))
        waiting -= prefilled[-1]
        queue.append(waiting)
    back, tokens = RATE_S // STEP, 100.0
    total = np.concatenate([[0.0], np.cumsum(prefilled)]) * tokens
    rate = np.full(arrived.size, np.nan)
    rate[back - 1 :] = (total[back:] - total[:-back]) / RATE_S
    load = ObservedLoad(
        rate[None], np.array(queue)[None], np.full((1, arrived.size), tokens), np.zeros((1, 1))
    )
    found = load.arriving_tokens_per_s(STEP)[0, back:]
    expected = [
        arrived[end - back + 1 : end + 1].sum() * tokens / RATE_S for end in range(back, arrived.size)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_each_day_has_its_own_rule_and_the_knob_of_the_config(
    day: Day, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = {"compact": 0.5}
    monkeypatch.setattr(live_replicas, "relative_capacity_share", lambda _, policy: shares[policy])
    rule = live_replicas.measure_live_rule(day.settings, DAY, Progress())
    assert (rule.capacity == 50.0).all()
    assert (rule.of_four == 100.0).all()
    measured, clock = [], Clock()
    monkeypatch.setattr(live_replicas, "measure_live_rule", lambda _, on, __: measured.append(on) or rule)
    live = live_source(day, "http://127.0.0.1:1", clock)
    monkeypatch.setattr(live_replicas, "read_observed_load", lambda *_: a_load([1.0] * 40, [1] * 40))
    for hours in (1, 23, 24, 25):
        clock.at = midnight(DAY) + timedelta(hours=hours)
        with suppress(IndexError):  # the load has one pool
            live.refresh()
    assert measured == [DAY, DAY + timedelta(days=1)]
    lines: list[str] = []
    monkeypatch.setattr(Progress, "say", lambda _, text: lines.append(text))
    monkeypatch.setattr(
        live_replicas, "measure_live_rule", failing := Mock(side_effect=ValueError("no days"))
    )
    for hours in (49, 50):
        clock.at = midnight(DAY) + timedelta(hours=hours)
        with suppress(IndexError):
            live.refresh()
    assert live._rule == (DAY + timedelta(days=2), rule)
    assert (lines, failing.call_count) == (
        [f"The rule of {DAY + timedelta(days=1)} stays in use: no days"],
        1,
    )


def test_each_request_is_counted_once_under_the_name_of_its_llm(day: Day, tmp_path: Path) -> None:
    """Under an older name of the metric, and at a frontend, the same requests come again."""
    again = {
        (other, region, of): 2 * values
        for (name, region, of), values in day.series.items()
        for other in {
            "vllm:prompt_tokens_total": ["vllm:request_prompt_tokens_sum", "sglang:prompt_tokens_total"],
            "vllm:time_to_first_token_seconds_count": ["vllm:request_prompt_tokens_count"],
            "vllm:num_requests_waiting": ["sglang:num_queue_reqs"],
        }.get(name, [])
    }
    mapping = read_mapping(LANDING_DIR / "small.metrics", "small", day.settings.catalogue)
    begins, grid = round(midnight(DAY).timestamp()) + 36_000, day.settings.grid
    instants = [begins + STEP * step for step in range(40)]

    def read(series: SERIES, names: dict[str, str], where: str = "") -> ObservedLoad:
        with simple_server(day._replace(series=series), tmp_path) as url:
            named = dataclasses.replace(mapping, llm_names=names) if names else mapping
            return read_observed_load(url, where, grid, named, instants, STEP)

    once = read(day.series, {})
    for found, expected in zip(read(day.series | again, {}), once, strict=True):
        np.testing.assert_array_equal(found, expected)
    engines = {key: rows for key, rows in day.series.items() if key[0].startswith("vllm")}
    renamed = {(*key[:2], key[2].replace("llama", "lama")): rows for key, rows in engines.items()}
    names = {llm.replace("llama", "lama"): llm for llm in day.settings.catalogue.llms}
    for found, expected in zip(read(renamed, names)[:3], once[:3], strict=True):
        np.testing.assert_array_equal(found, expected)
    QUERIES.clear()
    read(day.series, {}, 'cluster="a"')
    assert all('cluster="a"' in query for query in QUERIES)


def a_load(work: list[float], serving: list[int], waiting: int = 0) -> ObservedLoad:
    one = np.array([work])
    mean = np.full_like(one, 60.0)
    return ObservedLoad(one, np.full_like(one, waiting), mean, np.array([serving], float))


ONE_POOL = CompactRule(
    np.zeros(1, np.int64),
    np.ones((4, 1)),
    np.array([100.0]),
    np.array([100.0]),
    np.array([0]),
    np.array([9]),
    np.array([4]),
)


def test_a_need_is_held_and_then_released_within_the_limits() -> None:
    def newest(work: list[float], serving: list[int], waiting: int = 0, least: int = 0) -> float:
        rule = ONE_POOL._replace(least=np.array([least]))
        return live_replicas.live_replicas(a_load(work, serving, waiting), rule, 60.0)[0, 0]

    calm, nan = [150.0] * SHOWN_STEPS, float("nan")
    there = [2] * 60
    assert newest([*calm, 650.0, *[150.0] * 4], there[: SHOWN_STEPS + 5]) == 7  # held for four decisions
    assert newest([*calm, 650.0, *[150.0] * 5], there[: SHOWN_STEPS + 6]) == 2
    assert newest([*calm, 5000.0], there[: SHOWN_STEPS + 1]) == 9  # the pool's most
    assert newest([*calm, 0.0], there[: SHOWN_STEPS + 1]) == 2
    assert newest([0.0] * 40, [5] * 40) == 1  # one stays at home
    assert newest([0.0] * 40, [5] * 40, least=3) == 3
    assert newest([150.0] * 40, [5] * 40, waiting=100) == 3  # 100 prompts of 60 tokens within 60 s
    # A series that begins now: what serves is held too.
    assert newest([nan] * SHOWN_STEPS + [150.0], [5] * (SHOWN_STEPS + 1)) == 5
    assert newest([nan] * SHOWN_STEPS + [150.0], [50] * (SHOWN_STEPS + 1)) == 9
    assert newest([nan] * SHOWN_STEPS + [150.0] * 6, [5] * (SHOWN_STEPS + 6)) == 2
    left = a_load([0.0] * 12, [1] * 12)._replace(waiting_requests=np.array([[9.0] * 6 + [0.0] * 6]))
    assert not left.arriving_tokens_per_s(STEP).any()  # requests that their clients left do not arrive
    gap = STALE_S // STEP
    assert newest([*calm, *[nan] * (gap - 1)], there[: SHOWN_STEPS + gap - 1]) == 2
    assert np.isnan(newest([*calm, *[nan] * gap], there[: SHOWN_STEPS + gap]))


def test_each_change_of_measured_replicas_is_a_line() -> None:
    class Source:
        trace, policy, counts = "office", "day_ahead", iter([2, 2, 3, 2])

        def now(self) -> datetime:
            return midnight(DAY)

        def replica_target(self, *_: object) -> ReplicaTarget:
            return ReplicaTarget(next(self.counts), "measured", "", "")

    metadata = {"region": "east", "llm": "a", "gpu": "b", "gpusPerInstance": "1", "role": "whole"}
    ref = MESSAGE_CLASSES["ScaledObjectRef"](name="a", namespace="b", scalerMetadata=metadata)
    lines: list[str] = []
    scaler = KedaScaler(Source(), lines.append)
    for _ in range(4):
        asyncio.run(scaler.is_active(ref, Mock()))
    assert [line.split("  ")[-1] for line in lines] == ["measured 2", "measured 3", "measured 2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "prometheus:9090"], "--from prometheus:9090: it must be an address like"),
        (["--where", "a"], "--where: it selects series of a server. Name the server by --from URL."),
        (["--from", "http://127.0.0.1:1"], "The lake has no requests of office of .* Ingest them"),
    ],
)
def test_a_server_that_cannot_be_followed_is_refused_in_one_line(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETCAST_LAKE", str(tmp_path / "lake"))
    result = CliRunner().invoke(cli_app, ["serve", "scaler", *options])
    assert result.exit_code == 2
    assert re.search(message, " ".join(result.stderr.split()))


@pytest.mark.parametrize(
    ("options", "followed"),
    [([], "day_ahead"), (["--from", "http://a"], "compact, or day_ahead without metrics,")],
)
def test_the_first_line_names_what_is_followed(
    options: list[str], followed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(_scaler: KedaScaler, _address: str, is_ready: Callable[[int], None]) -> None:
        is_ready(7)

    monkeypatch.setenv("FLEETCAST_LAKE", str(tmp_path / "lake"))
    monkeypatch.setattr(keda_scaler, "run_scaler_server", serve)
    monkeypatch.setattr(live_replicas, "LiveReplicas", Mock())
    result = CliRunner().invoke(cli_app, ["serve", "scaler", *options])
    assert result.stdout == f"serving {followed} on 127.0.0.1:7   (Ctrl-C stops it)\n"
