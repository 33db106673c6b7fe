"""Installed from a wheel, without the checkout: what it reads lies inside, what it writes where one works."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from numba.core.caching import _CacheLocator
from small import ONE_TRIAL, small_config

from fleetcast.models import replay
from fleetcast.models.replay.compiled import cache_folder
from fleetcast.models.replay.session.background_compile import compile_kernel
from fleetcast.models.world.project_paths import ROOT

PACKAGES = sysconfig.get_path("purelib")


def uv() -> str:
    """The tool that builds it."""
    sibling = Path(sys.executable).with_name("uv")
    found = str(sibling) if sibling.exists() else shutil.which("uv")
    return found or pytest.skip("no uv here: pip install uv")


def run(*command: str | Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=1200, **options)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and nothing else; every other package comes from the tests' own environment."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(uv(), "build", "--wheel", "--offline", "--quiet", "-o", folder / "dist", cwd=ROOT)
    if built.returncode and "offline" in built.stderr.lower():
        pytest.skip("hatchling is in no cache here, and the test downloads nothing: uv build --wheel once")
    assert built.returncode == 0, built.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    shutil.unpack_archive(wheel, folder / "site", "zip")
    return folder / "site"


def environment(installed: Path, cache: Path) -> dict[str, str]:
    """Nothing of fleetcast but the wheel, and the kernel compiled in the checkout: the sources are alike."""
    sources, theirs = Path(replay.__path__[0]), installed / "fleetcast" / "models" / "replay"
    folder_name = _CacheLocator.get_suitable_cache_subpath  # of the cache of a source file's folder
    for path in sources.rglob("*.py"):
        there = theirs / path.relative_to(sources)
        os.utime(there, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))  # Numba compares them
        copied = cache / cache_folder().name / folder_name(str(there))
        if (compiled := cache_folder() / folder_name(str(path))).is_dir() and not copied.exists():
            shutil.copytree(compiled, copied)
    clean_env = {key: value for key, value in os.environ.items() if not key.startswith("FLEETCAST")}
    path = os.pathsep.join((str(installed), PACKAGES))
    return clean_env | {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(cache)}


def kernel_files(cache: Path) -> dict[Path, int]:
    """The compiled main loop of the kernel, and when it was written."""
    return {path: path.stat().st_mtime_ns for path in cache.rglob("kernel.advance_events*")}


def test_a_night_and_a_question_in_an_empty_folder(installed, tmp_path):
    """Run as another user would: from an empty folder, the code's own folder read-only."""
    compile_kernel()  # of the checkout, if no other test has
    clean_env = environment(installed, tmp_path / "cache")
    clean_env.pop("DAGSTER_HOME", None)
    config = small_config(tmp_path, policies='["reactive", "lt_i"]', **ONE_TRIAL)
    work = tmp_path / "work"
    work.mkdir()
    before = {path for path in installed.rglob("*") if "__pycache__" not in path.parts}
    compiled = kernel_files(tmp_path / "cache")
    fleetcast = (sys.executable, "-c", "from fleetcast.pipelines.cli import main; main()")
    night = run(*fleetcast, "nightly", "--config", config, "--quiet", cwd=work, env=clean_env)
    assert night.returncode == 0, night.stdout + night.stderr
    assert "tables   data/lake/warehouse.duckdb" in night.stdout
    assert compiled
    assert compiled.items() <= kernel_files(tmp_path / "cache").items()  # what is compiled is used
    query = run(
        *fleetcast, "sql", "queries/policies_over_days.sql", "--config", config, cwd=work, env=clean_env
    )
    assert query.stdout.count("\n") > 2, query.stderr
    assert sorted(path.name for path in work.iterdir()) == ["dagster.yaml", "data"]
    assert {".dagster", "figures", "lake"} <= {path.name for path in (work / "data").iterdir()}
    assert {path for path in installed.rglob("*") if "__pycache__" not in path.parts} == before
    estimate = ("--llm", "llama2-70b", "--gpu", "h200-141gb", "--tensor-parallel", "2", "--write")
    refused = run(*fleetcast, "calibrate", *estimate, cwd=work, env=clean_env)
    assert "needs a checkout" in refused.stderr


def test_it_installs_one_name(installed, tmp_path):
    """No package called models, assets or pipelines next to the code of whoever installs it."""
    assert sorted(path.name for path in installed.iterdir() if path.suffix != ".dist-info") == ["fleetcast"]
    surface = "from fleetcast import Fleet, Trace, replay; import fleetcast.models, importlib.util as u; "
    found = "print([u.find_spec(name) for name in ('models', 'assets', 'pipelines')])"
    clean_env = run(sys.executable, "-c", surface + found, cwd=tmp_path, env=environment(installed, tmp_path))
    assert clean_env.stdout == "[None, None, None]\n", clean_env.stderr
