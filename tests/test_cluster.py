"""A run on several machines, with real parts: Postgres, a daemon with its queue, code servers, Ray.

Where a part is missing the test prints how to get it. tests/bench/scaleout.py repeats this with kills.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
import yaml
from cluster_parts import FLEETCAST, Cluster, Missing, Ray, free_port, postgres
from small import small_config

from fleetcast.assets.lake.settings import Progress
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.models.world.project_paths import ROOT
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines import deployment
from fleetcast.pipelines.definitions import defs
from fleetcast.pipelines.deployment import check_deployment, read_deployment

DAYS = ("2025-07-01", "2025-07-02")


def refusal(folder: Path, *options: str, **environment: str) -> str:
    """The one line on stderr with which `fleetcast` refuses."""
    done = subprocess.run(
        [*FLEETCAST, *options], cwd=folder, env=os.environ | environment, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[locations.a]\nconfig = "office"\nexecutor = "celery"',
            "unknown executor 'celery'. Known: in_process",
        ),
        ('executr = "ray"\n[locations.a]\nconfig = "office"', "unknown key 'executr'"),
        ('lake = "lake"', "names no config"),
        ('[locations.a-b]\nconfig = "office"', "letters, digits and _"),
        ('[locations.a]\nconfig = "none.toml"', "There is no file"),
        (
            '[locations.a]\nconfig = "office"\n[locations.b]\nconfig = "office"',
            "both make the trace 'office'",
        ),
        ('[locations.a]\nconfig = "office"\nexecutor = "k8s"', "pip install 'fleetcast[k8s]'"),
    ],
)
def test_a_bad_deployment_is_refused_in_one_line(tmp_path, monkeypatch, text, message):
    monkeypatch.setitem(sys.modules, "dagster_k8s", None)
    file = tmp_path / "deploy.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        check_deployment(read_deployment(file))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_image_runs_as_a_number_and_the_values_are_yaml():
    """Kubernetes cannot check a user name for root, so `runAsNonRoot` refuses it."""
    folder = ROOT / "data" / "deploy"
    users = re.findall(r"^USER (\S+)$", (folder / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert users
    assert all(user.isdigit() for user in users)
    assert yaml.safe_load((folder / "k8s" / "values.yaml").read_text(encoding="utf-8"))["runLauncher"]


def test_two_code_servers_never_share_a_port(tmp_path):
    """gRPC would allow it, and the older server's code would answer."""
    port = str(free_port())
    first = subprocess.Popen(
        [*FLEETCAST, "serve", "code", "--port", port], cwd=tmp_path, stdout=subprocess.PIPE
    )
    assert first.stdout is not None
    try:
        assert b"serving fleetcast" in first.stdout.readline()
        taken = refusal(tmp_path, "serve", "code", "--port", port)
        assert f"Port {port} of 127.0.0.1 is taken" in taken
        other = refusal(tmp_path, "serve", "code", FLEETCAST_EXECUTOR="ry")
        assert "FLEETCAST_EXECUTOR: unknown executor 'ry'. Did you mean 'ray'?" in other
    finally:
        first.kill()
        first.wait()
        first.stdout.close()


def test_without_a_ray_cluster_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(deployment, "find_spec", lambda _: True)
    monkeypatch.setenv("FLEETCAST_EXECUTOR", "ray")
    monkeypatch.delenv("FLEETCAST_DEPLOYMENT", raising=False)
    (tmp_path / "deploy.toml").write_text('[locations.a]\nconfig = "office"\nexecutor = "ray"', "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("RAY_ADDRESS", f"http://127.0.0.1:{port}")
        assert deployment.dagster_dev_arguments()[0] == "-m"
    wrong = {"": "RAY_ADDRESS is ''", "HEAD:8265": "is 'HEAD:8265'", "http://h:99999": "is 'http://h:99999'"}
    wrong[f"http://127.0.0.1:{port}"] = (
        f"No Ray cluster answers at RAY_ADDRESS=http://127.0.0.1:{port} (Connection"
    )
    for address, message in wrong.items():
        monkeypatch.setenv("RAY_ADDRESS", address)
        for file in (None, str(tmp_path / "deploy.toml")):
            if file is not None:
                monkeypatch.setenv("FLEETCAST_DEPLOYMENT", file)
            with pytest.raises(ConfigError) as refused:
                deployment.dagster_dev_arguments()
            assert message in str(refused.value)
            assert str(refused.value).endswith("RAY_ADDRESS=http://HEAD:8265.")
            assert "\n" not in str(refused.value)
            monkeypatch.delenv("FLEETCAST_DEPLOYMENT", raising=False)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two configs in one instance: `here` runs its steps in one process, `ray` on a cluster of two nodes."""
    config = small_config(tmp_path)
    try:
        with postgres() as database:
            ray = Ray(os.environ | {"PYTHONPATH": str(ROOT), "FLEETCAST_POSTGRES_URL": database.url})
            tables = {"here": {"config": config, "lake": "here"}, "ray": {"config": config, "lake": "ray"}}
            tables["ray"]["executor"] = "ray"
            made = Cluster(tmp_path, database, tables, RAY_ADDRESS=ray.address)
            try:
                ray.start()
                made.start()
                yield made
            finally:
                made.end()
                ray.end()
    except Missing as reason:
        pytest.skip(str(reason))


def test_results_through_postgres_queue_and_ray_equal_one_process(cluster, tmp_path):
    config = tmp_path / "small.toml"
    resource = SettingsResource(config=str(config), lake=str(tmp_path / "own"))
    assert (
        defs.resolve_job_def("history")
        .execute_in_process(
            tags={
                f"dagster/asset_partition_range_{end}": DAYS[at] for at, end in enumerate(("start", "end"))
            },
            resources={"settings": resource, "progress": Progress()},
        )
        .success
    )
    config.unlink()  # its text is stored with the run
    runs = {name: cluster.submit(name, "history", *DAYS) for name in ("here", "ray")}
    for name, run in runs.items():
        assert cluster.ended(run).status.value == "SUCCESS", cluster.why(run)
        local, remote = Lake(tmp_path / "own"), Lake(tmp_path / name)
        for table in ("requests", "demand"):
            for day in map(date.fromisoformat, DAYS):
                of_day = {"trace": "small", "day": day}
                assert remote.part(table, **of_day).equals(local.part(table, **of_day)), (name, table, day)
    for name in runs:  # the page of a day shows the trace of its own location
        partitions = cluster.instance.get_materialized_partitions(cluster.key(name, "demand"))
        assert partitions == set(DAYS)
    assert not cluster.instance.get_materialized_partitions(cluster.key("demand"))
    assert "Ray job" in " ".join(event.message or "" for event in cluster.events(runs["ray"]))


def test_the_files_to_copy_use_existing_settings():
    """As far as possible without a cluster: YAML that parses, and variables that the code reads."""
    deploy = ROOT / "data" / "deploy"
    for path in deploy.rglob("*.yaml"):
        assert yaml.safe_load(path.read_text(encoding="utf-8")), path
    sources = [*(ROOT / "assets").rglob("*.py"), ROOT / "models" / "world" / "project_paths.py"]
    known = set(
        re.findall(r"FLEETCAST_[A-Z_]+", "".join(path.read_text(encoding="utf-8") for path in sources))
    )
    known |= set(re.findall(r"env: (FLEETCAST_\w+)", (deploy / "dagster.yaml").read_text(encoding="utf-8")))
    for path in (path for path in deploy.rglob("*") if path.is_file()):
        assert set(re.findall(r"FLEETCAST_[A-Z_]+", path.read_text(encoding="utf-8"))) <= known, path
    assert set(read_deployment(deploy / "deploy.toml")) == {"office", "azure"}
