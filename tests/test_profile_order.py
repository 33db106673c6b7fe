"""Profiles of aiconfigurator-core against the package's own answers, and the order of sources of profiles."""

import dataclasses
import json
import logging
import socket
import sys
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from fleetcast.models.latency import aiconfigurator_package, profile_cache
from fleetcast.models.latency.aiconfigurator_package import (
    PackageLacksData,
    fit_context_token_s,
    fit_decode_lines,
)
from fleetcast.models.latency.aiconfigurator_profiles import (
    aiconfigurator_profile,
    build_engine_query,
    profile_of_query,
)
from fleetcast.models.latency.latency_errors import ProfileError, errors_in_use
from fleetcast.models.latency.profile_order import complete_catalogue, describe_estimates, find_profile
from fleetcast.models.latency.roofline import between_gpus_s, deployment_work, roofline_decode_s
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.catalogue_entries import BACKENDS, Llm
from fleetcast.models.world.catalogue_overrides import override_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.model_rows import sizes_of_model
from fleetcast.models.world.shipped_models import read_model_config
from fleetcast.models.world.toml_dataclasses import ConfigError

pytest.importorskip("aiconfigurator_core", reason="aiconfigurator-core has no wheel for this platform")

CATALOGUE = load_catalogue()
H100, PCIE = "h100-80gb", "rtxpro6000-96gb"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, and a cache of its own: every test uses the package."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a profile must not touch the network")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("FLEETCAST_PROFILE_CACHE", str(tmp_path / "profiles"))
    profile_cache.answer_query.cache_clear()


def with_llm(name: str, **changes: Any) -> Any:
    llm = dataclasses.replace(CATALOGUE.llms[name], **changes)
    return dataclasses.replace(CATALOGUE, llms={**CATALOGUE.llms, name: llm})


@pytest.mark.parametrize(
    ("llm", "model", "tp", "options"),
    [
        ("llama3.1-8b", "meta-llama/Meta-Llama-3.1-8B", 2, {}),
        ("llama3.1-70b-fp8", "meta-llama/Meta-Llama-3.1-70B", 4, {"gemm_quant_mode": "fp8"}),
        ("gpt-oss-120b", "openai/gpt-oss-120b", 2, {"moe_tp_size": 2}),
        ("qwen3-32b", "Qwen/Qwen3-32B", 2, {"backend": "sglang"}),
        ("qwen3-32b", "Qwen/Qwen3-32B", 2, {"backend": "trtllm"}),
    ],
)
def test_a_profile_repeats_the_package(llm: str, model: str, tp: int, options: dict[str, Any]) -> None:
    """Knots are the package's own answers; steps between them are near its answers."""
    from aiconfigurator_core.sdk.engine import EngineHandle

    logging.getLogger("aiconfigurator_core").setLevel(logging.CRITICAL)
    options = dict(options)
    backend = options.pop("backend", "vllm")
    query = build_engine_query(with_llm(llm, backend=backend), llm, H100, tp)
    own = profile_of_query(query, llm, H100, tp)
    assert f"kernels of {backend} " in own.source
    engine = EngineHandle.compile(model, "h100_sxm", backend, tp_size=tp, **options)
    for n in (128, 2048, 32768):
        expected_s = engine.predict_prefill_latency(1, n, 0) / 1e3
        assert own.prefill_s[own.prefill_tokens.index(n)] == pytest.approx(expected_s, rel=1e-3)
    for batch, context in ((1, 512), (16, 1024), (64, 2048), (256, 512)):
        step_s = own.decode_s[own.decode_batch.index(batch)] + own.decode_per_kv_token_s * batch * context
        assert step_s == pytest.approx(engine.decode_step_latency(batch, context, 2) / 1e3, rel=0.1)
    ends = [(chunk, earlier) for chunk in (512, 2048) for earlier in (2048, 32768)]
    later_s = [
        (engine.predict_prefill_latency(1, sum(one), one[1]) - engine.predict_prefill_latency(1, one[0], 0))
        / 1e3
        for one in ends
    ]
    products = np.prod(ends, axis=1, keepdims=True).astype(float)
    slope = np.linalg.lstsq(products, np.array(later_s))[0].item()
    near = pytest.approx(slope, rel=5e-3)  # a context between the ends lies near their line
    assert own.prefill_per_context_token_s == near


def test_other_backends_have_the_package_s_profiles_and_errors_of_their_own() -> None:
    """No composed kernels, no step of vLLM's added, no estimate; each with the law of its own runs."""
    laws = dict[str, ProfileError]()
    for backend, llm in product(BACKENDS, ("llama3.1-8b", "qwen3-30b-a3b")):
        own = with_llm(llm, backend=backend)
        pool = Deployment(H100, 2, backend=None if backend == "vllm" else backend)
        profile = find_profile(own, llm, H100, 2)
        served = dataclasses.replace(CATALOGUE, latency=(profile,))
        if pool.backend:
            served = dataclasses.replace(
                CATALOGUE, changed_latency={(llm, (("backend", backend),)): (profile,)}
            )
            raw = profile_of_query(build_engine_query(own, llm, H100, 2), llm, H100, 2)
            assert profile.prefill_s == raw.prefill_s
            with pytest.raises(ConfigError, match=rf"4 x l4-24gb by {backend}: .*Drop backend"):
                find_profile(own, llm, "l4-24gb", 4)
        [laws[backend + llm]] = errors_in_use(served, [(llm, [pool])])
    engine = CATALOGUE.engine
    expected = {
        "vllm": (engine.composed, engine.package_mixture),
        "sglang": (engine.sglang_dense, engine.sglang_mixture),
        "trtllm": (engine.trtllm_dense, engine.trtllm_mixture),
    }
    for backend, llms in expected.items():
        for llm, errors in zip(("llama3.1-8b", "qwen3-30b-a3b"), llms, strict=True):
            found = laws[backend + llm]
            assert (found.prefill, found.decode) == (errors.prefill, errors.decode)


def test_lines_through_steps_are_found_again() -> None:
    """Steps that are f[B] + g*B*x exactly give back f and g; missing ones do not matter."""
    batch, context = np.array([1.0, 8.0, 64.0]), np.array([128.0, 1024.0, 8192.0])
    f, g = np.array([0.01, 0.011, 0.02]), 3e-8
    step_s = f[:, None] + g * batch[:, None] * context
    step_s[2, 2] = np.nan
    found_s, slope = fit_decode_lines(batch, context, step_s)
    assert slope == pytest.approx(g)
    np.testing.assert_allclose(found_s, f)
    chunk, earlier = np.array([512.0, 2048.0]), np.array([2048.0, 8192.0])
    assert fit_context_token_s(chunk, earlier, 2e-10 * chunk[:, None] * earlier) == pytest.approx(2e-10)


def test_the_correction_is_a_longer_step_and_a_slower_link() -> None:
    """On NVLink a dense llm's passes take step_doubling_s longer per doubling; over PCIe the link counts."""
    for llm, gpu, tp in (("llama3.1-8b", H100, 4), ("llama3.1-8b", PCIE, 2), ("gpt-oss-120b", H100, 4)):
        query = build_engine_query(CATALOGUE, llm, gpu, tp)
        raw, own = profile_of_query(query, llm, gpu, tp), aiconfigurator_profile(CATALOGUE, llm, gpu, tp)
        added_s = np.array(own.prefill_s) - np.array(raw.prefill_s)
        step_s = CATALOGUE.engine.step_doubling_s * np.log2(tp) * (CATALOGUE.llms[llm].experts is None)
        if gpu == PCIE:
            work = deployment_work(CATALOGUE.llms[llm], CATALOGUE.gpus[gpu], tp)
            link_s = between_gpus_s(work, np.array(raw.prefill_tokens), CATALOGUE.efficiency)
            step_s = step_s + np.maximum(link_s - profile_cache.answer_query(query)["between_s"][0], 0.0)
            assert step_s[-1] > 0.1 * raw.prefill_s[-1]
        np.testing.assert_allclose(added_s, step_s, atol=2e-6)


def test_a_mixture_s_steps_are_no_longer_than_the_limit_over_the_roofline() -> None:
    """MiniMax-M2.5 in 8 bits on B200: the package has 38 ms a step. No limit: dense llms, ranks, states."""
    sizes = sizes_of_model("MiniMaxAI/MiniMax-M2.5", "here", "minimax")
    arch = Llm(**sizes, source="here", model="MiniMaxAI/MiniMax-M2.5")
    changes: list[tuple[dict[str, int], bool]] = [
        ({}, True),
        ({"expert_ranks": 2}, False),
        ({"cache_layers": 9}, False),
    ]
    for change, is_limited in changes:
        served = dataclasses.replace(arch, **change)  # type: ignore[arg-type]
        own = dataclasses.replace(
            CATALOGUE, llms={"minimax": served, "llama3.1-8b": CATALOGUE.llms["llama3.1-8b"]}
        )
        raw = profile_of_query(
            build_engine_query(own, "minimax", "b200-180gb", 2), "minimax", "b200-180gb", 2
        )
        profile = aiconfigurator_profile(own, "minimax", "b200-180gb", 2)
        work = deployment_work(served, CATALOGUE.gpus["b200-180gb"], 2)
        most_s = CATALOGUE.engine.mixture_most_over_roofline * roofline_decode_s(
            work, raw.decode_batch, CATALOGUE.efficiency
        )
        expected_s = np.minimum(raw.decode_s, most_s) if is_limited else raw.decode_s
        np.testing.assert_allclose(profile.decode_s, expected_s, atol=2e-7)
        assert profile.prefill_s == raw.prefill_s
        if is_limited:
            assert raw.decode_s[2] > 0.035 > 0.012 > profile.decode_s[2]
    dense = aiconfigurator_profile(CATALOGUE, "llama3.1-70b-fp8", "b200-180gb", 2)
    work = deployment_work(CATALOGUE.llms["llama3.1-70b-fp8"], CATALOGUE.gpus["b200-180gb"], 2)
    limit_s = CATALOGUE.engine.mixture_most_over_roofline * roofline_decode_s(
        work, dense.decode_batch, CATALOGUE.efficiency
    )
    assert (np.array(dense.decode_s) > 1.01 * limit_s).any()


def test_the_first_source_with_a_profile_is_taken() -> None:
    """A row of latency.toml, composed kernels, the package, composed in part, the roofline that says why."""
    kinds = {
        ("llama2-70b", H100, 4): "composed",
        ("llama3.1-8b", H100, 2): "composed",
        ("llama3.1-70b-fp8", "a100-80gb", 8): "estimated",  # no GPU of that type multiplies in 8 bits
        ("qwen3-30b-a3b", H100, 2): "aiconfigurator-core",
        ("deepseek-v3", "h200-141gb", 8): "aiconfigurator-core",
        ("qwen3-8b", "h20-96gb", 1): "composed in part",
        ("qwen3-8b", "rtx4090-24gb", 1): "estimated",
        ("phi3-mini", H100, 1): "estimated",
    }
    found = {key: find_profile(CATALOGUE, *key) for key in kinds}
    assert {key: profile.source.partition(":")[0] for key, profile in found.items()} == kinds
    own = dataclasses.replace(found["llama3.1-8b", H100, 2], source="calibrated: 300 requests of a log")
    mine = dataclasses.replace(CATALOGUE, latency=(*CATALOGUE.latency, own))
    assert find_profile(mine, "llama3.1-8b", H100, 2) is own
    assert (
        "because aiconfigurator-core has no data of rtx4090-24gb"
        in found["qwen3-8b", "rtx4090-24gb", 1].source
    )
    assert (
        "llms.toml has neither the model of phi3-mini nor all its widths"
        in found["phi3-mini", H100, 1].source
    )
    lacking = dataclasses.replace(CATALOGUE, latency=tuple(found.values()))
    lines = describe_estimates(lacking)
    assert len(lines) == 3
    assert lines[1].startswith("1 x rtx4090-24gb for qwen3-8b: estimated: roofline.toml, because")


def test_profiles_of_a_past_year_are_used_only_by_a_config_that_says_so() -> None:
    """A step of 32 took 2 to 3 times as long in 2023; what was not measured keeps its profile."""
    key, other = ("llama2-70b", H100, 4), ("llama3.1-8b", H100, 2)
    past = override_catalogue(CATALOGUE, {"latency_era": "2023"}, "own.toml")
    old, new = find_profile(past, *key), find_profile(CATALOGUE, *key)
    assert (old.source.partition(":")[0], old.era, new.era) == ("measured", "2023", "")
    assert (
        2 < np.interp(32, old.decode_batch, old.decode_s) / np.interp(32, new.decode_batch, new.decode_s) < 3
    )
    assert find_profile(past, *other) == find_profile(CATALOGUE, *other)
    assert not any(profile.era for profile in CATALOGUE.latency)
    for wrong in ("2022", 2023, True):
        with pytest.raises(
            ConfigError, match=rf"own\.toml \[catalogue\] latency_era: got {wrong!r}, needed '2023'"
        ):
            override_catalogue(CATALOGUE, {"latency_era": wrong}, "own.toml")
    for name in ("office", "office_large", "together", "azure"):
        assert "latency_era" not in load_config(name, CATALOGUE).catalogue
    for name in ("paper", "sageserve", "cascades"):
        assert load_config(name, CATALOGUE).catalogue["latency_era"] == "2023"


def test_a_config_is_completed_with_every_deployment() -> None:
    config = load_config("office", CATALOGUE)
    deployments = {**config.fleet.deployments, "qwen3-8b": (Deployment(PCIE, 2),)}
    fleet = dataclasses.replace(config.fleet, deployments=deployments)
    whole = complete_catalogue(CATALOGUE, dataclasses.replace(config, fleet=fleet))
    assert not describe_estimates(whole)
    assert whole.profile("qwen3-8b", PCIE, 2).source.startswith("composed")
    moves = dataclasses.replace(config.replay.moves, interval_s=0.001)
    often = dataclasses.replace(config, replay=dataclasses.replace(config.replay, moves=moves))
    with pytest.raises(
        ConfigError, match=r"0\.001 is less than the shortest step of any instance, 0\.00.* Raise"
    ):
        complete_catalogue(CATALOGUE, often)


@pytest.mark.parametrize(
    ("llm", "changes", "gpu", "tp", "message"),
    [
        (
            "llama3.1-8b",
            {},
            H100,
            3,
            "llama3.1-8b on 3 x h100-80gb: tensor_parallel must divide the 32 heads",
        ),
        (
            "qwen3-32b",
            {"model": "Qwen/Qwen3-23B"},
            H100,
            4,
            "there is no config.json of 'Qwen/Qwen3-23B'. Did you mean",
        ),
        (
            "qwen3-32b",
            {"layers": 63},
            H100,
            4,
            "layers is 63, but that of the config.json of its model is 64",
        ),
    ],
)
def test_what_cannot_be_right_is_refused(
    llm: str, changes: dict[str, Any], gpu: str, tp: int, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        find_profile(with_llm(llm, **changes), llm, gpu, tp)
    assert message in str(refused.value)
    assert not isinstance(refused.value, PackageLacksData)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json is not JSON"),
        ("[1]", "config.json has no JSON table"),
        (
            '{"num_hidden_layers": -1}',
            "layers is 64, but num_hidden_layers in the config.json of its model is -1",
        ),
    ],
)
def test_a_config_that_lies_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        find_profile(with_llm("qwen3-32b", model=str(tmp_path)), "qwen3-32b", H100, 4)


@pytest.mark.parametrize(
    "text", ["{}", json.dumps({"architectures": ["Foo"]}), json.dumps({"architectures": 7})]
)
def test_a_config_that_the_package_rejects_is_estimated(
    tmp_path: Path, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    profile = find_profile(with_llm("qwen3-30b-a3b", model=str(tmp_path)), "qwen3-30b-a3b", PCIE, 1)
    assert profile.source.startswith("estimated: roofline.toml, because aiconfigurator-core has no data")
    assert capfd.readouterr() == ("", "")  # nothing of the package's log


def test_what_the_package_does_not_find_is_named(tmp_path: Path) -> None:
    config = json.loads(read_model_config("Qwen/Qwen3-32B", "qwen3-32b")[0])
    del config["max_position_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(PackageLacksData, match=r"it finds no 'max_position_embeddings' in config\.json"):
        aiconfigurator_profile(with_llm("qwen3-32b", model=str(tmp_path)), "qwen3-32b", H100, 2)


def test_the_package_logs_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def log_and_refuse(*_: Any) -> dict[str, str]:
        logging.getLogger("aiconfigurator_core.sdk").error("rows of low fidelity")
        return {"refusal": "no kernels"}

    monkeypatch.setattr(aiconfigurator_package, "measure_tables", log_and_refuse)
    logging.getLogger("aiconfigurator_core").setLevel(logging.INFO)
    profile = find_profile(CATALOGUE, "qwen3-30b-a3b", PCIE, 1)
    assert profile.source.endswith("because aiconfigurator-core has no data: no kernels")
    assert not caplog.records
    assert logging.getLogger("aiconfigurator_core").level == logging.INFO


def test_without_the_package_profiles_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    profile = find_profile(CATALOGUE, "qwen3-30b-a3b", H100, 2)
    assert profile.source.startswith("estimated: roofline.toml, because aiconfigurator-core is not installed")


def test_the_second_time_the_answer_comes_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers, also refusals, come from disk; a damaged file is computed again."""
    first = find_profile(CATALOGUE, "qwen3-30b-a3b", H100, 2)
    profile_cache.answer_query.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(aiconfigurator_package, "measure_tables", lambda *_: pytest.fail("computed again"))
        assert find_profile(CATALOGUE, "qwen3-30b-a3b", H100, 2) == first
    [file] = profile_cache.profile_cache_folder().iterdir()
    file.write_text("{")
    profile_cache.answer_query.cache_clear()
    assert find_profile(CATALOGUE, "qwen3-30b-a3b", H100, 2) == first
