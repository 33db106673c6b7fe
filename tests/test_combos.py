"""Combos: which ones the search keeps, and their goodput by replay."""

import dataclasses
import importlib

import numpy as np
import pytest

from fleetcast.models.plan import combos
from fleetcast.models.plan.combos import Combo, ComboPart
from fleetcast.models.plan.phase_costs import MeanRequest, PhasePrice, disaggregated_request_usd, saving_bound
from fleetcast.models.replay.session.fleet_arrays import link_token_s
from fleetcast.models.replay.session.rules import make_rules
from fleetcast.models.trials.capacity import (
    LoadTrial,
    fixed_fleet,
    measure_capacity_tokens_per_s,
    sample_requests,
    throughput_tokens_per_s,
)
from fleetcast.models.trials.goodput import goodput_per_s
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.project_paths import ROOT

LOAD = MeanRequest(1000, 200)
QUICK = PhasePrice(
    "quick", 1, 4.0, 4 * 1e-8, 4 * 4e-7, 64, 0.02
)  # 36 us a prompt token, 1.44 ms an output token
WIDE = PhasePrice("wide", 2, 3.0, 3 * 4e-8, 3 * 3e-7, 64, 0.02)


def test_a_team_is_as_fast_as_its_slower_phase() -> None:
    one = Combo(None, ComboPart(QUICK, 1))
    assert one.per_s(LOAD) == pytest.approx(1 / (1000 * 36e-6 + 200 * 1.44e-3))
    team = Combo(ComboPart(QUICK, 1), ComboPart(WIDE, 2))
    assert team.per_s(LOAD) == pytest.approx(min(1 / 0.036, 2 / (200 * 1.08e-3)))
    assert team.usd_per_hour == 4 + 2 * 3
    assert team.uses == {"quick": 1, "wide": 4}
    assert (one.title, team.title) == ("1xquick", "1xquick > 2 x 2xwide")
    assert one.tokens_per_usd(LOAD) == pytest.approx(1200 / one.decode.price.usd_per_request(LOAD))
    assert team.tokens_per_usd(LOAD, 1.0) == pytest.approx(1200 * 3600 / 10)


def test_no_team_is_cheaper_than_the_bound() -> None:
    """Whole instances leave one of the phases idle: a token costs as much as the bound, or more."""
    bound = saving_bound([QUICK, WIDE], LOAD)
    assert bound.saving_share > 0
    best = 1200 / disaggregated_request_usd(bound.prefill, bound.decode, LOAD)
    all_of_them = combos.disaggregated_combos([QUICK, WIDE], range(1, 9), range(1, 60))
    found = max(combo.tokens_per_usd(LOAD) for combo in all_of_them)
    assert 0.98 * best < found <= best * (1 + 1e-12)


def test_the_filter_keeps_the_better_direction_and_one_team_of_each_size() -> None:
    everything = combos.disaggregated_combos([QUICK, WIDE], (1, 2), range(1, 7))
    assert len(everything) == 2 * 2 * 12
    kept = combos.filter_combos(everything, LOAD, 1000)
    sizes = [tuple(sorted(combo.uses.items())) for combo in kept]
    assert len(set(sizes)) == len(sizes)
    ways = {tuple(part.price.gpu for part in combo.parts) for combo in kept}
    assert ("quick", "wide") in ways
    assert ("wide", "quick") not in ways
    efficiency = [combo.tokens_per_usd(LOAD) for combo in kept]
    assert efficiency == sorted(efficiency, reverse=True)
    assert combos.filter_combos(everything, LOAD, 3) == kept[:3]
    of_one_size = [c for c in everything if c.uses == kept[0].uses]
    assert kept[0].per_s(LOAD) == max(combo.per_s(LOAD) for combo in of_one_size)


def test_links_carry_one_cache_at_a_time() -> None:
    slow, wide = (price._replace(link_token_s=s) for price, s in ((QUICK, 1e-3), (WIDE, 2e-5)))
    for p, d, links in ((1, 3, 1), (2, 1, 1), (3, 20, 3)):
        carried = links / (1000 * 1e-3)  # the slower end limits
        assert Combo(ComboPart(slow, p), ComboPart(wide, d)).per_s(LOAD) == pytest.approx(carried)
        assert carried < Combo(ComboPart(QUICK, p), ComboPart(WIDE, d)).per_s(LOAD)
    assert Combo(None, ComboPart(slow, 1)).per_s(LOAD) == Combo(None, ComboPart(QUICK, 1)).per_s(LOAD)


# --- goodput by replay -----------------------------------------------------------------------------------

LLM, GPU = "llama3.1-8b", "h100-80gb"
CATALOGUE = load_catalogue().of_era("2023", "here")
CONFIG = load_config("sageserve", CATALOGUE)
RNG = np.random.default_rng(5)
MIX = (
    np.clip(RNG.lognormal(6.5, 0.5, 3000), 1, 8192).astype(np.int32),
    np.clip(RNG.lognormal(5.0, 0.5, 3000), 1, 2048).astype(np.int32),
)
TIER = CATALOGUE.tiers["iw_fast"]
WHOLE = Deployment(GPU, 1)
PREFILL, DECODE = (dataclasses.replace(WHOLE, role=role) for role in ("prefill", "decode"))


def goodput(*team: tuple[Deployment, int], near: float = 8.0, link: float = 400.0, **target: float) -> float:
    config = dataclasses.replace(CONFIG, fleet=dataclasses.replace(CONFIG.fleet, link_gbit_per_s=link))
    tier = dataclasses.replace(TIER, **target)
    return goodput_per_s(LLM, team, CATALOGUE, config, tier, *MIX, near)


def test_the_goodput_of_an_instance_or_a_team_is_its_capacity() -> None:
    theta = measure_capacity_tokens_per_s(LLM, WHOLE, CATALOGUE, CONFIG, *MIX)
    drawn = MIX[0][np.random.default_rng(0xCA9).integers(0, 3000, 20_000)].mean()
    assert goodput((WHOLE, 1)) == pytest.approx(theta / drawn, rel=0.03)
    sides = [dataclasses.replace(side, team=n) for side, n in ((PREFILL, 1), (DECODE, 2))]
    theta = measure_capacity_tokens_per_s(LLM, sides[0], CATALOGUE, CONFIG, *MIX, partner=sides[1])
    assert goodput(*((side, side.team) for side in sides)) == pytest.approx(theta / drawn, rel=0.03)
    assert goodput((WHOLE, 1), near=1.0) == pytest.approx(goodput((WHOLE, 1), near=60.0), rel=0.03)


def test_every_request_of_a_mix_may_be_sampled() -> None:
    """A mix of two has both, in equal parts and with their own lengths; a mix of one has that one."""
    for n in (1, 2):
        drawn = sample_requests(np.arange(1, n + 1, dtype=np.int32), np.arange(11, n + 11, dtype=np.int32))
        found, counts = np.unique(drawn.input_tokens, return_counts=True)
        assert found.tolist() == list(range(1, n + 1))
        assert counts.min() / counts.sum() == pytest.approx(1 / n, abs=0.05)
        assert (drawn.output_tokens - drawn.input_tokens == 10).all()


TEAMS = [(1, 1, 0.99), (1, 3, 0.99), (2, 1, 0.99), (2, 3, 0.5)]


@pytest.mark.parametrize(("prefill", "decode", "least"), TEAMS)
def test_no_team_sends_more_than_its_links_carry(prefill: int, decode: int, least: float) -> None:
    """Overload over 2 Gb/s: one link carries the closed form; with several, senders wait for each other."""
    config = dataclasses.replace(CONFIG, fleet=dataclasses.replace(CONFIG.fleet, link_gbit_per_s=2.0))
    fleet = fixed_fleet({LLM: [(PREFILL, prefill), (DECODE, decode)]}, CATALOGUE.serving([LLM]), config)
    drawn = sample_requests(*MIX)
    tokens = float(drawn.input_tokens.mean())
    trial = LoadTrial(drawn, fleet, make_rules(CATALOGUE, config.replay, "follow"))
    sent = throughput_tokens_per_s(trial, LLM, "whole") / tokens
    price = QUICK._replace(link_token_s=link_token_s(CATALOGUE, config.fleet, LLM, GPU, 1))
    carried = Combo(ComboPart(price, prefill), ComboPart(price, decode)).per_s(MeanRequest(tokens, 1.0))
    assert least * carried < sent <= 1.01 * carried


def test_both_targets_count_and_more_of_everything_never_serves_less() -> None:
    whole = goodput((WHOLE, 1))
    paced = goodput((WHOLE, 1), tpot_slo_s=0.012)
    assert 0 < paced < 0.9 * whole
    assert goodput((WHOLE, 1), tpot_slo_s=0.001) == 0.0
    pair, two, wider = (goodput((PREFILL, p), (DECODE, d)) for p, d in ((1, 1), (2, 2), (1, 3)))
    assert two > 1.9 * pair
    assert wider > 0.98 * pair
    quick, slow = (goodput((PREFILL, 1), (DECODE, 1), link=link, ttft_slo_s=1.0) for link in (1e5, 1.0))
    assert quick > 1.5 * slow  # a prompt of 750 tokens takes 0.8 s over 1 Gb/s


@pytest.mark.parametrize(("prefill", "decode"), [("h800-80gb", "h20-96gb"), (None, "a800-80gb-pcie")])
def test_cauchys_computed_efficiency_is_its_phases_summed_token_by_token(
    monkeypatch: pytest.MonkeyPatch, prefill: str | None, decode: str
) -> None:
    """Equations (3) to (14): FLOPs of a batch of prompts, and bytes of each decode step, by their seconds."""
    monkeypatch.syspath_prepend(ROOT / "tests" / "bench")
    rented, paper = importlib.import_module("gpus_fleets"), importlib.import_module("gpus_paper")
    scenario = paper.scenario_of("longwriter")
    batch, outputs, arch = 32, 4000, scenario.catalogue.llms[rented.LLM]
    scenario = scenario._replace(load=MeanRequest(500.0, float(outputs)))
    part = lambda gpu: ComboPart(PhasePrice(gpu, 1, 1.0, 0.0, 0.0, batch, 0.0), 1)  # noqa: E731
    found = rented.computed_tokens_per_usd(
        scenario, Combo(None if prefill is None else part(prefill), part(decode))
    )
    first, then = scenario.catalogue.gpus[prefill or decode], scenario.catalogue.gpus[decode]
    h, i, v, layers = arch.hidden, arch.intermediate, arch.vocabulary, arch.layers
    flop = batch * (4 * layers * h * 500**2 + (8 * layers * h**2 + 6 * layers * h * i) * 500)
    weights = 2 * (2 * v * h + (4 * h**2 + 3 * h * i + 2 * h) * layers)
    cached = 2 * 2 * layers * arch.kv_heads * arch.head_dim
    read = sum(weights + batch * cached * (500 + step) for step in range(outputs))
    prefilled = batch * 500 / (flop / (first.peak_tflops * 1e12)) / (first.usd_per_hour / 3600)
    decoded = batch * outputs / (read / (then.bandwidth_tb_per_s * 1e12)) / (then.usd_per_hour / 3600)
    assert found == pytest.approx(prefilled + decoded, rel=1 / outputs)
