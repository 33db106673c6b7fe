"""Errors of files and of the system that no other test reaches: one line with the remedy, or a default."""

import errno
import json
import os
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import dagster as dg
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fleetcast.assets.advice import import_trace
from fleetcast.assets.advice.advice_config import cheapest_deployment
from fleetcast.assets.advice.advice_pipeline import deployments_to_compare, find_fleets_to_rent
from fleetcast.assets.advice.remedies import AmpleFleet
from fleetcast.assets.lake import contract, partitions, process_resources, query_process, store
from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.query_limits import QueryLimits
from fleetcast.assets.lake.read_only_query import parse_read_only_query
from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.pages.asset_metadata import user_errors_as_failures
from fleetcast.assets.plans import export_options, observed_fleet
from fleetcast.assets.studies import engine_logs, experiment, log_rows, rent_answer, study, try_fleet
from fleetcast.assets.studies.rent_query import RentQuery, deployment_prices
from fleetcast.assets.studies.whatif_cases import WhatIfCase, resolve_case
from fleetcast.assets.traces import file_content, landed_rows, landing, servegen_requests
from fleetcast.models.configure.engine_points import EngineShape, why_unfit
from fleetcast.models.forecast import statespace
from fleetcast.models.latency import aiconfigurator_package, aiconfigurator_profiles, profile_cache
from fleetcast.models.latency.aiconfigurator_package import ask_package
from fleetcast.models.latency.aiconfigurator_profiles import build_engine_query
from fleetcast.models.latency.profile_order import (
    comparable_profiles,
    complete_catalogue,
    compute_profile,
    profiled_gpus,
)
from fleetcast.models.replay.session import background_compile
from fleetcast.models.trials.latency_curves import ReplicaShape, is_feasible_shape
from fleetcast.models.world import toml_dataclasses
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines import deployment, levels_cli, terminal_tables, try_cli


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def samples(path: Path) -> list[Any]:
    read = (
        observed_fleet._read_csv_samples if path.suffix == ".csv" else observed_fleet._read_prometheus_samples
    )
    return list(read(path))


CSV = "at,region,workload,replicas\n2025-07-01T00:00,east,a,{}\n"
SERIES = (
    '{{"data": {{"result": [{{"metric": {{"region": "east", "deployment": "a"}}, "values": [[{}, "2"]]}}]}}}}'
)
REFUSED: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "a variable that is no number": (
        lambda _: process_resources._numeric_variable({"CORES": "many"}, "CORES", 99.0),
        ValueError, r"^CORES is 'many', needed a number from 1 to 99\. Set another, or unset it\.$",
    ),
    "a query that is no UTF-8": (
        lambda _: parse_read_only_query(duckdb.connect(), "select '\ud800'"),
        LakeError, r"^The query has a byte that is no UTF-8, at character 9\. Write it in UTF-8\.$",
    ),
    "no log": (
        lambda folder: log_rows.read_json_documents(folder / "a.jsonl"),
        ValueError, r"^There is no file .*a\.jsonl\. Name a log of measured requests\.$",
    ),
    "a log of half a line": (
        lambda folder: log_rows.read_json_documents(written(folder / "a.jsonl", '{"a": ')),
        ValueError, r"^a\.jsonl is neither JSON nor JSON lines: .*\. Export it again\.$",
    ),
    "a nested log": (
        lambda folder: log_rows.read_json_documents(written(folder / "a.jsonl", "[" * 100_000)),
        ValueError, r"^a\.jsonl is neither JSON nor JSON lines: .*recursion.*\. Export it again\.$",
    ),
    "limits that are a folder": (
        engine_logs.read_engine_limits,
        ValueError, r"Is a directory\. Name the engine's metadata or its start-up log\.$",
    ),
    "a list with a word": (
        lambda _: levels_cli.parse_numbers("--levels", "2, x", int),
        ValueError, r"^--levels: got 'x', needed whole numbers with commas between\.$",
    ),
    "a contract that is no YAML": (
        lambda folder: contract.read_contract(written(folder / "a.yaml", "a: [")),
        ValueError, r"^a\.yaml is no YAML: [^\n]*\.$",
    ),
    "triggers that are no YAML": (
        lambda _: export_options.parse_custom_triggers("a: [", "a.yaml"),
        ValueError, r"^--triggers: a\.yaml is no YAML: [^\n]*\.$",
    ),
    "replicas that are no number": (
        lambda folder: samples(written(folder / "a.csv", CSV.format("two"))),
        ValueError, r"^a\.csv, entry 1: at '2025-07-01T00:00' and replicas 'two' must be an instant",
    ),
    "an instant out of range": (
        lambda folder: samples(written(folder / "a.json", SERIES.format("1e300"))),
        ValueError, r"^a\.json is no Prometheus response .*\(OverflowError: ",
    ),
    "a nested response": (
        lambda folder: samples(written(folder / "a.json", "[" * 100_000)),
        ValueError, r"^a\.json is no Prometheus response .*\(RecursionError: ",
    ),
    "TOML below a file": (
        lambda folder: toml_dataclasses.read_toml(written(folder / "a", "") / "b.toml"),
        ValueError, r"b\.toml cannot be read: Not a directory\. Name a TOML file\.$",
    ),
    "a member outside of its folder": (
        lambda folder: unpacked(folder),
        ValueError, r"^a\.tar cannot be unpacked: .*outside.*\. Pack it anew\.$",
    ),
}  # fmt: skip


def unpacked(folder: Path) -> str:
    """The query for an archive with a member that names a place outside."""
    with tarfile.open(folder / "a.tar", "w") as archive:
        archive.add(written(folder / "a.json", "{}"), "../a.json")
    landed = SimpleNamespace(
        path=folder / "a.tar",
        source=SimpleNamespace(listed=lambda _: [file_content.member_pattern("../a.json")]),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landed_rows, "iterate_members", lambda archive, _: archive)
        return landed_rows._members_query(landed, folder / "out", None)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_one_line_with_its_remedy(case: str, tmp_path: Path) -> None:
    work, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message) as refused:
        work(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_port_of_a_running_server_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=rf"^Port {port} of 127\.0\.0\.1 is taken: .* another --port\.$"):
            deployment.take_port("127.0.0.1", port)


def test_a_file_that_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", link)
    store.link_or_copy(written(tmp_path / "a", "text"), tmp_path / "b" / "c")
    assert (tmp_path / "b" / "c").read_text() == "text"
    assert (tmp_path / "a").stat().st_ino != (tmp_path / "b" / "c").stat().st_ino


def test_a_profile_that_cannot_be_stored_is_no_error(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "") / "b.json"
    profile_cache.write_answer(path, {"tables": 1})
    assert profile_cache.read_answer(path) is None
    profile_cache.write_answer(tmp_path / "b.json", {"tables": 1})
    assert profile_cache.read_answer(tmp_path / "b.json") == {"tables": 1}


def test_a_year_that_python_lacks_is_shown_as_arrow_writes_it() -> None:
    year = pa.chunked_array([pa.array([10_000 * 365 * 86_400_000_000], pa.timestamp("us"))])
    assert terminal_tables._values(year)[0].startswith("11963-")


def test_the_memory_of_a_process_that_ended_is_unknown() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    assert query_process.own_memory_bytes(ended.pid) == 0
    assert query_process.own_memory_bytes(os.getpid()) > 10**6


def exhaust_memory(*_: object) -> NoReturn:
    raise AssertionError(len(bytearray(1 << 62)))


def test_an_error_that_is_no_mistake_of_the_query_is_one_line() -> None:
    query = query_process.QueryProcess(exhaust_memory, QueryLimits())
    with pytest.raises(LakeError, match=r"^The query failed: MemoryError: $"), query.result():
        pass


def test_trials_are_stopped_where_their_rows_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the disk is full: trials that run end at their next step, and no other begins."""
    begun, stopped = list[int](), list[int]()

    def replay(trial: int, _: object, step: Callable[[int], None]) -> int:
        begun.append(trial)
        for _second in range(100 * min(trial, 1)):
            time.sleep(0.01)
            try:
                step(0)
            except KeyboardInterrupt:
                stopped.append(trial)
                raise
        return trial

    monkeypatch.setattr(experiment, "replay_trial", replay)
    monkeypatch.setattr(experiment, "usable_cores", lambda: 2)
    rows: Any = experiment.replay_trials(range(9), 9, SimpleNamespace(), "", Progress())  # type: ignore[arg-type]
    assert next(rows) == 0
    rows.close()
    assert sorted(stopped) == sorted({*begun} - {0}) != []
    assert len(begun) <= 3


def test_a_broken_config_hides_no_day_of_the_others(tmp_path: Path) -> None:
    office = partitions.CONFIG_DIR / "office.toml"
    written(tmp_path / "office.toml", office.read_text())
    before = partitions.days_of_traces(Lake(tmp_path / "lake"), tmp_path)
    written(tmp_path / "broken.toml", "[trace")
    assert partitions.days_of_traces(Lake(tmp_path / "lake"), tmp_path) == before
    assert len(before) >= 15


def test_a_file_of_servegen_that_is_no_json_is_left_out(tmp_path: Path) -> None:
    for name, text in {"chunk-1-dataset.json": "{", "chunk-2-dataset.json": json.dumps({})}.items():
        written(tmp_path / name, text)
    assert dict(servegen_requests.read_windows(sorted(tmp_path.iterdir()))) == {}


def test_a_value_below_broken_json_is_not_there() -> None:
    assert file_content._value_at({"a": "{" * 3}, ("a", "b")) is None
    assert file_content._value_at({"a": '{"b": 7}'}, ("a", "b")) == 7


@pytest.mark.parametrize("fit", [lambda x: statespace._fit_order(x, (1, 0, 1)), statespace._fit_smoothing])
def test_a_series_that_cannot_be_fitted_has_no_fit(fit: Callable[[np.ndarray], Any]) -> None:
    assert fit(np.full(3, np.inf)) is None


@pytest.mark.parametrize(
    ("error", "retries"),
    [(LakeError("the disk is full"), True), (LakeError("no table"), False), (ValueError("got 3"), False)],
)
def test_a_mistake_is_a_failure_of_one_line(error: Exception, retries: bool) -> None:
    with pytest.raises(dg.Failure) as failed, user_errors_as_failures():
        raise error
    assert (failed.value.description, failed.value.allow_retries) == (str(error), retries)


def test_an_interruption_is_not_repeated() -> None:
    with pytest.raises(dg.Failure) as failed, user_errors_as_failures():
        raise dg.DagsterExecutionInterruptedError
    assert failed.value.allow_retries is False


def test_waiting_for_the_compilation_counts_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[int] = []
    with subprocess.Popen(["sleep", "1.5"]) as process:
        monkeypatch.setattr(background_compile, "_running", [process])
        background_compile.wait_for_compilation(seconds.append)
    assert seconds[:1] == [1]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be written: Not a directory\.") as refused:
        import_trace._clear_folder(written(tmp_path / "a", "") / "page", tmp_path / "source.csv")
    assert "\n" not in str(refused.value)


def test_ctrl_c_in_duckdb_is_ctrl_c(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Lake(tmp_path / "lake").connect(query="select 1"):
        raise RuntimeError("Query interrupted")
    with pytest.raises(RuntimeError, match="other"), Lake(tmp_path / "lake").connect(query="select 1"):
        raise RuntimeError("other")


CATALOGUE = load_catalogue()
OFFICE = load_config("office", CATALOGUE)
DEGREES = try_fleet.DEFAULT_DEGREES
UNLINKED = replace(  # no two GPUs of an L4 are one instance: it has no such profile
    CATALOGUE, gpus={**CATALOGUE.gpus, "l4-24gb": replace(CATALOGUE.gpus["l4-24gb"], peer_gb_per_s=None)}
)
TWO_L4 = Deployment("l4-24gb", 2)


def holds(llm: str, gpu: str, degree: int) -> bool:
    """Whether the weights leave memory for a cache: 90 % of the memory is usable."""
    usable = OFFICE.fleet.kv_memory_share * degree * CATALOGUE.gpus[gpu].memory_gib * 2**30
    return usable > CATALOGUE.llms[llm].weight_bytes


@pytest.mark.parametrize("llm", CATALOGUE.llms)
def test_gpus_that_do_not_hold_an_llm_are_left_out(llm: str) -> None:
    """By each function that chooses among GPUs; none of them ends at the first that is too small."""
    least: dict[str, int] = {}
    for gpu in CATALOGUE.gpus:
        for degree in DEGREES:
            if not holds(llm, gpu, degree):
                assert not is_feasible_shape(ReplicaShape(llm, gpu, degree, 1), CATALOGUE, OFFICE, 1)
                assert why_unfit(CATALOGUE, llm, EngineShape(gpu, degree), OFFICE, 1)
        with suppress(ConfigError):
            least[gpu] = try_fleet.min_tensor_parallel(llm, gpu, CATALOGUE, OFFICE)
            assert holds(llm, gpu, least[gpu])
    with suppress(ConfigError):
        chosen = cheapest_deployment(llm, CATALOGUE, OFFICE)
        priced = {gpu: CATALOGUE.gpus[gpu].usd_per_hour for gpu in profiled_gpus(CATALOGUE, llm)}
        usd = {gpu: degree * priced[gpu] for gpu, degree in least.items() if priced.get(gpu)}
        assert (usd[chosen.gpu], chosen.tensor_parallel) == (min(usd.values()), least[chosen.gpu])
    settings: Any = SimpleNamespace(catalogue=CATALOGUE, config=OFFICE)
    found = deployments_to_compare(SimpleNamespace(fleets={}), settings, llm, list(CATALOGUE.gpus))
    twice = {gpu: 2 * n for gpu, n in least.items() if n < 8 and CATALOGUE.llms[llm].heads % (2 * n) == 0}
    assert found == [Deployment(gpu, n) for gpu in least for n in (least[gpu], twice.get(gpu)) if n]
    assert all(holds(llm, gpu, degree) for gpu, degree in twice.items())
    assert ("l4-24gb" in least) == any(holds(llm, "l4-24gb", degree) for degree in DEGREES)


def test_a_deployment_without_a_profile_is_left_out_or_named(tmp_path: Path) -> None:
    llm = "llama3.1-8b"
    pairs = [("l4-24gb", 1), ("l4-24gb", 2)]
    assert list(comparable_profiles(UNLINKED, llm, pairs)) == pairs[:1]
    assert AmpleFleet(pd.DataFrame(), llm, TWO_L4, UNLINKED, OFFICE).least_share() is None
    config = replace(OFFICE, fleet=replace(OFFICE.fleet, deployments={llm: (TWO_L4,)}))
    with pytest.raises(ConfigError, match=r"^case 7: .*peer_gb_per_s") as named:
        complete_catalogue(UNLINKED, config, "case 7")
    assert "\n" not in str(named.value)
    settings = RunSettings(Lake(tmp_path), UNLINKED, config)
    with pytest.raises(ConfigError, match=r"^case 8: .* is not in \[fleet\.deployments\]"):
        resolve_case(settings, WhatIfCase("the same fleet"), "case 8")
    catalogue, note = try_cli.price_fleets(
        [f"1 x {llm}@{gpu}" for gpu in CATALOGUE.gpus], CATALOGUE, OFFICE, True, None, None
    )
    assert catalogue is CATALOGUE
    assert "of several providers: none has all these types" in note


def test_what_the_package_cannot_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lacks attention of an llm on a GPU, in any bits; and an answer that is no profile."""
    lacking = ask_package(build_engine_query(CATALOGUE, "gpt-oss-20b", "a100-80gb", 1))["refusal"]
    assert lacking.startswith("perf database error: context attention data missing")
    query = build_engine_query(CATALOGUE, "llama3.1-8b", "h100-80gb", 1)
    monkeypatch.setattr(aiconfigurator_package, "measure_tables", exhaust_memory)
    with pytest.raises(MemoryError):
        ask_package(query)
    tables = [[8, 16], [0.1, 0.2], [1, 2], [0.0, 0.1], 1e-9]
    answer = {"tables": tables, "prefill_per_context_token_s": 0.0, "expert_s": [], "engine_version": "1"}
    monkeypatch.setattr(aiconfigurator_profiles, "answer_query", lambda _: answer)
    refused = (
        r"^aiconfigurator-core gave no usable profile\. .*decode seconds \[0\.0, 0\.1\] must be positive"
    )
    with pytest.raises(ConfigError, match=refused):
        aiconfigurator_profiles.profile_of_query(query, "llama3.1-8b", "h100-80gb", 1)


def test_gpus_to_rent_that_are_too_small_are_named_with_their_number() -> None:
    llm = "llama3.1-70b"
    small = tuple(compute_profile(CATALOGUE, llm, "l4-24gb", degree) for degree in (1, 2))
    scenario = SimpleNamespace(
        catalogue=replace(CATALOGUE, llms={llm: CATALOGUE.llms[llm]}, latency=small), config=OFFICE
    )
    with pytest.raises(ConfigError, match=r"\(132 GiB of weights\): 1, 2 x l4-24gb too small\. Name others"):
        deployment_prices(scenario)


def test_a_broken_study_file_or_llm_keeps_no_other_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake")
    (lake.root / study.PREPARED / "old").mkdir(parents=True)
    monkeypatch.setattr(study, "study_names", lambda: ["broken"])
    monkeypatch.setattr(study, "load_study", lambda *_: load_config("no such config", CATALOGUE))
    study.drop_unused_lakes(lake, [])
    assert list((lake.root / study.PREPARED).iterdir()) == []

    def land(path: Path, *_: Any) -> None:
        raise {"a": ZeroDivisionError("division\nby zero"), "b": LakeError("b is full.")}[path.stem]

    monkeypatch.setattr(landing, "landed_files", lambda: [tmp_path / "a.csv", tmp_path / "b.csv"])
    monkeypatch.setattr(landing, "lone_mappings", list)
    monkeypatch.setattr(landing, "land_file", land)
    outcome = landing.land_all_files(SimpleNamespace(lake=lake))
    assert outcome.refused == ["a.csv cannot be read: division. Remove it from data/landing.", "b is full."]

    def answer(_: object, __: object, query: RentQuery, *___: object) -> str:
        if query.llm == "a":
            raise ConfigError("No GPU holds a.")
        assert query.gpus == ("l4-24gb",)
        return query.llm

    lines: list[str] = []
    monkeypatch.setattr(rent_answer, "answer_rent_query", answer)
    monkeypatch.setattr(rent_answer, "write_rent_tables", lambda *_: None)
    gpus = {"a": ["l4-24gb"], "b": ["l4-24gb"]}
    wanted = (["a", "b"], gpus, None, SimpleNamespace(say=lines.append))
    assert find_fleets_to_rent(SimpleNamespace(), date(2025, 7, 1), *wanted) == {"b": "b"}
    assert lines == ["No GPU holds a."]
