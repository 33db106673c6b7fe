"""What ran, from the metrics of a cluster: a real Prometheus, and answers whose hours are known by hand."""

import itertools
import json
import re
import time
import urllib.parse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_parts import prometheus_of, served
from small import small_config
from typer.testing import CliRunner

from fleetcast.assets.lake import settings as lake_settings
from fleetcast.assets.lake.settings import RunSettings, load_settings, midnight
from fleetcast.assets.plans import observed_fleet_metrics
from fleetcast.assets.plans.observed_fleet import known_workloads
from fleetcast.assets.plans.observed_fleet_metrics import import_fleet_metrics
from fleetcast.models.world.catalogue import CATALOGUE_DIR
from fleetcast.pipelines.cli import cli_app

TODAY = datetime.now(UTC).date()
DAY = TODAY - timedelta(days=2)
READY, NAME = "kube_deployment_status_replicas_ready", "llama2-70b-h100-80gb"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSettings:
    (tmp_path / "small.toml").write_text(small_config_text(tmp_path))
    return load_settings(str(tmp_path / "small.toml"), tmp_path / "lake")


def small_config_text(folder: Path) -> str:
    return Path(small_config(folder)).read_text()


def landing(tmp_path: Path, text: str = "") -> Path:
    folder = tmp_path / "landing"
    folder.mkdir(exist_ok=True)
    (folder / "small.toml").write_text(text)
    return folder


def rows(settings: RunSettings, day: Any = DAY) -> dict[tuple[str, str, int], tuple[float, int]]:
    found = settings.lake.read("ran_fleets", trace=settings.trace, day=day).to_pylist()
    return {
        (one["served_region"], one["llm"], one["hour_start"].hour): (one["instances"], one["samples"])
        for one in found
    }


def test_prometheus_metrics_give_the_running_fleet(settings: RunSettings, tmp_path: Path) -> None:
    """Ready replicas of one llm as Kubernetes counts them, of another the processes that its engine has."""
    kube = "\n".join(
        f'{READY}{{deployment="{name}",namespace="{space}",region="east"}} {count}'
        for name, space, count in ((NAME, "a", 2), (NAME, "b", 1), ("something-else", "a", 9))
    )
    engine = (
        'vllm:time_to_first_token_seconds_count{model_name="bloom-176b",engine="0",region="west"} 5\n'
        'vllm:prompt_tokens_total{model_name="bloom-176b",engine="0",region="west"} 50'
    )

    def text(of: str) -> Callable[[str], tuple[int, dict[str, str], bytes]]:
        return lambda _: (200, {"Content-Type": "text/plain"}, f"{of}\n".encode())

    with (
        served(text(kube)) as one,
        served(text(engine)) as two,
        served(text(engine)) as three,
        prometheus_of(tmp_path, [one, two, three]) as url,
    ):
        ends_s, found, message = time.monotonic() + 20, {}, None
        while sum(mean > 0 for mean, _ in found.values()) < 2 or min(n for _, n in found.values()) < 4:
            assert time.monotonic() < ends_s, (found, message)
            time.sleep(0.5)
            try:
                import_fleet_metrics(settings, url, TODAY, 1, "", landing(tmp_path))
                found = rows(settings, TODAY)
            except ValueError as error:
                message = error  # at first nothing is read yet

    assert {key[0] for key in found} == {"east", "west"}
    serving = {("east", "llama2-70b"): 3, ("west", "bloom-176b"): 2}
    for key, (instances, _) in found.items():
        assert instances == pytest.approx(serving.get(key[:2], 0), abs=0.8), "but for its start"


def answering(series: dict[str, list[tuple[dict[str, str], list[tuple[int, int]]]]]) -> Callable[[str], Any]:
    """Answers to queries that have such a word in them: labels, and values by minute of the day."""
    begin = int(midnight(DAY).timestamp())

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(path).query))["query"]
        result = [
            {"metric": labels, "values": [[begin + 60 * minute, str(value)] for minute, value in values]}
            for word, found in series.items()
            if word in query
            for labels, values in found
        ]
        data = {"resultType": "matrix", "result": result}
        return 200, {}, json.dumps({"status": "success", "data": data}).encode()

    return answer


def test_absent_pool_counts_zero_where_others_are_scraped(settings: RunSettings, tmp_path: Path) -> None:
    """Half an hour of two replicas, a quarter without any, a quarter without readings.

    Every workload of the config counts in every region that has readings, or that the mapping names.
    """
    there = {
        "count(up)": [({}, [(minute, 5) for minute in range(45)])],
        "kube_deployment": [
            ({"cluster": "eu-1", "deployment": NAME}, [(minute, 2) for minute in range(30)]),
            ({"cluster": "us", "deployment": NAME}, [(minute, 3) for minute in range(45)]),
        ],
        # behind a name of its own, and known by both: who has ready replicas is not counted again
        "vllm:time_to_first_token": [
            ({"cluster": "us", "model_name": "ours"}, [(minute, 4) for minute in range(45)]),
            ({"cluster": "us", "model_name": "llama2-70b"}, [(minute, 9) for minute in range(45)]),
        ],
    }
    folder = landing(
        tmp_path,
        'labels = { region = "cluster" }\nlabel_names = { "eu-1" = "east", us = "west", ap = "central" }\n'
        'llm_names = { ours = "bloom-176b" }\n',
    )
    with served(answering(there)) as url:
        hours, source = import_fleet_metrics(settings, url, DAY, 60, "", folder)
    assert hours == {DAY: 1}
    assert source == (
        "ready replicas of 2 Deployments; processes of vLLM: "
        "no Deployment or StatefulSet has the name bloom-176b-h100-80gb"
    )
    nothing = dict.fromkeys(
        itertools.product(("east", "central", "west"), settings.catalogue.llms, (0,)), (0.0, 45)
    )
    assert rows(settings) == nothing | {
        ("east", "llama2-70b", 0): (pytest.approx(2 * 30 / 45), 45),
        ("west", "llama2-70b", 0): (3.0, 45),
        ("west", "bloom-176b", 0): (4.0, 45),
    }


def test_the_page_names_a_workload_as_the_export_does() -> None:
    page = (CATALOGUE_DIR.parent / "docs" / "how-to" / "export-a-plan.md").read_text()
    (name,) = re.findall(r"workload MODEL-GPU, like `(.+?)`", page)
    assert name in known_workloads(load_settings("office").grid)


def test_missing_server_metrics_are_reported_in_one_line(settings: RunSettings, tmp_path: Path) -> None:
    labels = {"deployment": NAME}
    for there, message in (
        ({}, r"neither ready replicas \(kube-state-metrics\) of .* nor an engine .* with \{a=\"b\"\}\. Give"),
        ({"kube_deployment": [(labels, [(1, 1)])]}, r"no label 'region' .* small\.toml, labels = "),
        ({"kube_deployment": [({**labels, "region": "eats"}, [(1, 1)])]}, r"unknown region 'eats'.*east"),
    ):
        with served(answering(there)) as url, pytest.raises(ValueError, match=message) as caught:
            import_fleet_metrics(settings, url, DAY, 60, 'a="b"', landing(tmp_path))
        assert "\n" not in str(caught.value)
    with served(lambda _: (401, {}, b"")) as url, pytest.raises(ValueError, match="refuses access: 401"):
        import_fleet_metrics(settings, url, DAY, 60, "", landing(tmp_path))


def test_the_command_takes_a_file_or_a_server(
    settings: RunSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = settings.lake.root
    monkeypatch.setattr(lake_settings, "load_settings", lambda config, *_: load_settings(config, here))
    monkeypatch.setattr(observed_fleet_metrics, "LANDING_DIR", landing(tmp_path))
    config = str(tmp_path / "small.toml")
    there = {"kube_statefulset": [({"region": "east", "statefulset": NAME}, [(0, 2)])]}
    with served(answering(there)) as url:
        arguments = ["plan", "ran", "--from", url, "--date", str(DAY), "--config", config]
        done, quiet = (CliRunner().invoke(cli_app, [*arguments, *extra]) for extra in ([], ["-q"]))
    assert done.exit_code == 0, done.output
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")
    assert done.stderr.startswith("import the fleet that ran ... ")
    assert f"{DAY}: 1 of 24 hours\nsource   ready replicas of 1 StatefulSet\n" in done.output
    for options in ([], ["x.csv", "--from", "http://localhost"]):
        done = CliRunner().invoke(cli_app, ["plan", "ran", *options, "--config", config])
        assert done.exit_code == 2
        assert "either a file or --from" in done.stderr
