"""The witness: factors of measured over replayed seconds, changes, causes, and the alarm from counters."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from engine_counters import E2E_S, TTFT_S
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner
from witness_nights import CONFIG, FIRST_DAY, LLM, REGION, TRACE, Night, draw_requests, run_days, serve_day

from fleetcast.assets.lake.errors import LakeError
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.studies.witness import drifted_rows, largest_drifts, witness_day
from fleetcast.assets.studies.witnessed_profile import fit_witnessed_profile
from fleetcast.assets.traces.request_days import write_tiers
from fleetcast.models.trials.drift_causes import (
    CACHE_HITS,
    CAUSE_SENTENCES,
    DriftCause,
    DriftVerdict,
    NightHours,
    judge_night,
    likely_cause,
)
from fleetcast.models.trials.engine_calibration import LIMITS
from fleetcast.models.trials.latency_drift import (
    LEAST_LEVEL_HOURS,
    PROBE_FACTOR,
    SPEED_PARTS,
    LevelEstimate,
    MeasuredHours,
    ReplayedTimes,
    estimate_ratio,
    find_change,
    hourly_speed_ratios,
    usual_ratios,
)
from fleetcast.models.trials.point_fit import LEAST_FIT_HOURS, fit_hours
from fleetcast.pipelines.cli import cli_app

NONE = np.full(24, np.nan)
ALLOWED = dict.fromkeys(SPEED_PARTS, 1.15)
HAPPENS_AT = 13  # hour of the planted change


@settings(derandomize=True)  # one of some thousand samples is further away
@given(st.floats(-0.5, 0.5), st.floats(0.4, 1.0), st.sampled_from([TTFT_S, E2E_S]), st.integers(0, 2**32 - 1))
def test_coarse_buckets_give_the_factor(
    ratio: float, sigma: float, bounds: tuple[float, ...], seed: int
) -> None:
    """Two samples of one law, of which one is slower: the factor is found within five of its errors."""
    rng = np.random.default_rng(seed)
    replayed, measured = (rng.lognormal(0.5, sigma, 400) for _ in range(2))
    edges = np.append(bounds, np.inf)
    times = ReplayedTimes(np.zeros(400, np.int64), measured * np.exp(ratio))
    found, error = estimate_ratio(edges, times.counts(edges)[0], np.sort(replayed))
    assert 0.0 < error < 0.2
    assert abs(found - ratio) < 5 * error + 0.02


def test_seconds_that_all_lie_in_one_bucket_tell_nothing() -> None:
    ratio = estimate_ratio(np.array([0.001, 100.0, np.inf]), np.array([0.0, 300.0, 0.0]), np.full(300, 0.3))
    assert ratio[1] == np.inf


def test_narrow_seconds_in_a_wide_bucket_have_no_bias() -> None:
    """0.2 s lies between 0.1 and 0.25 s: factors of 0.5 to 1.25 are as likely, and their mean is not 1."""
    edges, hour = np.append(TTFT_S, np.inf), np.repeat(np.arange(24), 250)
    rng = np.random.default_rng(3)
    replays = [
        {"ttft_s": ReplayedTimes(hour, 0.2 * factor * rng.lognormal(0.0, 0.05, 6000))}
        for factor in (1.0, PROBE_FACTOR, 1.0)
    ]
    measured = ReplayedTimes(hour, 0.2 * rng.lognormal(0.0, 0.05, 6000))
    found = hourly_speed_ratios({"ttft_s": MeasuredHours(edges, measured.counts(edges))}, replays)
    assert np.nanmedian(found.ratios[:, 2]) == pytest.approx(0.0, abs=0.03)


def hours_of(prefill: float, decode: float, queue: float, seed: int) -> dict[str, ReplayedTimes]:
    """Times of an engine; with a queue both measures have it, and it grows with the cube of both phases."""
    rng = np.random.default_rng(seed)
    hour, tokens = np.repeat(np.arange(24), 250), rng.lognormal(4.5, 0.8, 6000)
    wait_s = queue * (prefill * decode) ** 3 * rng.lognormal(0.0, 0.3, 6000)
    ttft_s = 0.2 * prefill * rng.lognormal(0.0, 0.8, 6000) + wait_s
    return {
        "ttft_s": ReplayedTimes(hour, ttft_s),
        "e2e_s": ReplayedTimes(hour, ttft_s + 0.02 * decode * tokens),
    }


@pytest.mark.parametrize(("prefill", "decode"), [(1.2, 1.0), (1.0, 1.2), (0.85, 1.15)])
def test_each_phase_has_its_own_factor(prefill: float, decode: float) -> None:
    found = engine_factors(prefill, decode, queue=0.0)
    assert np.nanmedian(found, axis=0)[:2] == pytest.approx((prefill, decode), rel=0.05)


def test_an_overloaded_engine_shows_the_factor_of_both_phases_alone() -> None:
    """Where all is queue, measures are 7 and 6 times as sensitive; the common factor is still exact."""
    found = engine_factors(1.04, 1.04, queue=20.0)
    assert np.nanmedian(found[:, 2]) == pytest.approx(1.04, rel=0.02)


def engine_factors(prefill: float, decode: float, queue: float) -> np.ndarray:
    """Factors by hour, (24, 3), of an engine against replays of it with other requests."""
    factors = ((1.0, 1.0), (PROBE_FACTOR, 1.0), (1.0, PROBE_FACTOR))
    replays = [hours_of(*each, queue, seed=1) for each in factors]
    edges = {"ttft_s": np.append(TTFT_S, np.inf), "e2e_s": np.append(E2E_S, np.inf)}
    measured = {
        name: MeasuredHours(edges[name], times.counts(edges[name]))
        for name, times in hours_of(prefill, decode, queue, seed=2).items()
    }
    return np.exp(hourly_speed_ratios(measured, replays).ratios)


def night(level: float = 0.0, since: int = 24, by: float = 0.0, usual: float | None = 0.0) -> NightHours:
    """A part with hours at a level, that change at an hour; `usual` None: there is no past."""
    ratios = level + by * (np.arange(24) >= since) + np.random.default_rng(0).normal(0.0, 0.02, 24)
    return NightHours(ratios, np.full(24, 0.03), NONE if usual is None else np.full(24, usual))


def judged(prefill: NightHours, decode: NightHours, cached: NightHours | None = None):
    speeds = dict(zip(SPEED_PARTS, (prefill, decode, night()), strict=True))
    return judge_night(speeds, cached or NightHours(NONE, NONE, NONE), ALLOWED)


def test_a_change_is_seen_from_its_hour_on_and_against_nights_that_were_off_too() -> None:
    """A profile that is 40 % off each night is one thing, an engine that slows down by 20 % another."""
    found = judged(night(), night(0.33, 9, 0.18, usual=0.33))
    assert found.cause is DriftCause.DECODE_SETTING
    assert (found.parts["decode"].verdict, found.parts["decode"].changed_hour) == (DriftVerdict.CHANGED, 9)
    assert found.parts["decode"].ratio == pytest.approx(np.exp(0.51), rel=0.03)
    assert found.parts["decode"].usual == pytest.approx(np.exp(0.33))
    assert found.parts["prefill"].verdict is DriftVerdict.FITS
    calm = judged(night(), night(0.33, usual=0.33))
    assert (calm.cause, calm.parts["decode"].verdict) == (DriftCause.PROFILE_OLD, DriftVerdict.OFF_PROFILE)


@pytest.mark.parametrize("usual", [None, 0.0])
@pytest.mark.parametrize(
    "level", [sign * (np.log(1.15) + n / 250) for n in range(-4, 12) for sign in (1, -1)]
)
def test_the_verdict_follows_the_bounds_that_are_shown(level: float, usual: float | None) -> None:
    """They have the error of the profile and, as it is a sample, that of the day."""
    part = judged(night(), night(level, usual=None if usual is None else level)).parts["decode"]
    assert (part.verdict is DriftVerdict.OFF_PROFILE) == (not 1 / part.allowed <= part.ratio <= part.allowed)
    assert 1.15 * 1.01 < part.allowed < 1.15 * 1.04


def test_a_first_night_off_its_profile_knows_of_no_other_night() -> None:
    found = judged(night(usual=None), night(0.33, usual=None))
    assert found.cause is DriftCause.PROFILE_OLD
    assert "night" not in CAUSE_SENTENCES[found.cause]


def test_a_change_at_midnight_needs_more_than_nights_differ() -> None:
    assert judged(night(), night(0.11)).cause is None
    assert judged(night(), night(0.11, 0, 0.09)).parts["decode"].changed_hour == 0
    assert judged(night(), night(0.0, 8, 0.12)).cause is DriftCause.DECODE_SETTING
    for seed in range(10):
        noise = np.random.default_rng(seed).normal(0.2, 0.03, 24)
        assert find_change(noise, np.full(24, 0.03), np.zeros(24)) == 0


def test_the_first_night_needs_a_large_step() -> None:
    assert judged(night(), night(0.0, 12, 0.15, usual=None)).cause is None
    assert judged(night(), night(0.0, 12, 0.4, usual=None)).parts["decode"].changed_hour == 12


def test_a_lost_cache_is_the_cause_whatever_else_changed() -> None:
    hits = night(np.log(0.3), 15, -2.0, usual=np.log(0.3))
    assert judged(night(0.0, 15, 0.3), night(), hits).cause is DriftCause.CACHE_GONE
    rare = night(np.log(0.02), 15, -2.0, usual=np.log(0.02))
    assert judged(night(), night(), rare).cause is None


def test_fewer_hours_than_a_level_needs_are_unknown() -> None:
    for known in range(25):
        hours = np.random.default_rng(known).permutation(24) < known
        part = night()._replace(ratios=np.where(hours, night().ratios, np.nan))
        verdicts = {judged(part, part).parts[name].verdict for name in ("prefill", "decode")}
        assert verdicts == {DriftVerdict.UNKNOWN if known < LEAST_LEVEL_HOURS else DriftVerdict.FITS}


@pytest.mark.parametrize(
    ("prefill", "decode", "cause"),
    [
        (0.2, 0.2, DriftCause.SLOWER_GPU),
        (0.2, None, DriftCause.PREFILL_SETTING),
        (None, 0.2, DriftCause.DECODE_SETTING),
        (0.4, 0.12, DriftCause.ENGINE_UPGRADED),
        (-0.2, None, DriftCause.ENGINE_UPGRADED),
        (None, None, DriftCause.ENGINE_SPEED),
    ],
)
def test_causes(prefill: float | None, decode: float | None, cause: DriftCause) -> None:
    changes = {"prefill": prefill, "decode": decode, "engine": 0.15}
    assert likely_cause({k: LevelEstimate(v, 0.01) for k, v in changes.items() if v is not None}) is cause


def test_an_hour_that_always_differs_is_usual_by_half() -> None:
    past = np.zeros((4, 24))
    past[:, 3] = 0.2
    assert usual_ratios(past)[[2, 3]] == pytest.approx([0.0, 0.1])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> RunSettings:
    """Two days of engines whose decode is 10 % faster than the profile, and one on which it slows down."""
    steady = Night(1.0, 0.9)
    slower = steady._replace(hour=HAPPENS_AT, decode_change=1.3)
    nights = [steady, steady, slower]
    return run_days(tmp_path_factory.mktemp("site"), nights, seed=3, per_day=8000.0, cached_share=0.4)


def parts_of(settings: RunSettings, number: int) -> dict[str, dict]:
    table = witness_day(settings, FIRST_DAY + timedelta(days=number), Progress())
    return {row["part"]: row for row in table.to_pylist()}


def test_counters_of_a_slower_engine_raise_the_alarm(site: RunSettings, monkeypatch) -> None:
    first, second = parts_of(site, 0), parts_of(site, 1)
    assert parts_of(site, 1) == second, "a night that is made again is not its own past"
    for row in (*first.values(), *second.values()):
        assert row["verdict"] == DriftVerdict.FITS, row
    assert second["decode"]["ratio"] == pytest.approx(0.9, rel=0.04)
    assert second["decode"]["usual_ratio"] == pytest.approx(first["decode"]["ratio"], rel=0.02)
    assert second["decode"]["low"] < 0.9 < second["decode"]["high"]
    assert 0.2 < second[CACHE_HITS]["ratio"] < 0.4
    assert second["prefill"]["allowed_factor"] is None  # metrics do not tell which prompts were cached
    assert second["decode"]["served_region"] is None  # no label of the engines has it
    shown: dict = {}
    monkeypatch.setattr(
        "fleetcast.pipelines.runs.publish_on_demand",
        lambda asset, settings, made: shown.update(asset.metadata(settings, made)),
    )
    day = FIRST_DAY + timedelta(days=2)
    monkeypatch.setattr("fleetcast.pipelines.witness_cli.load_settings_and_day", lambda *_: (site, day))
    answer = CliRunner().invoke(cli_app, ["witness", "--quiet"])
    assert answer.exit_code == 1, answer.output
    assert "fits between" in answer.output
    assert f"{LLM}: decode setting. Likely: only decode is slower" in answer.output
    assert "fleetcast calibrate" in answer.output
    rows = site.lake.sql("from witnessed where day = $day", day=day)
    decode = next(row for row in rows.to_pylist() if row["part"] == "decode")
    assert decode["ratio"] == pytest.approx(0.9 * 1.3, rel=0.05)
    assert decode["changed_at"].hour == pytest.approx(HAPPENS_AT, abs=1)
    alarms = site.lake.sql("alarms/engines_run_as_before.sql", trace=TRACE, day=day)
    assert {row["part"] for row in drifted_rows(rows)} == set(alarms["part"].to_pylist()) >= {"decode"}
    drifts = largest_drifts(site, day)
    assert drifts["decode_factor"] == decode["ratio"]
    assert drifts["alarms"] == alarms.num_rows
    assert {name: shown[name] for name in drifts} == drifts


def test_times_of_single_requests_do_as_well(site: RunSettings, tmp_path: Path) -> None:
    """A log has which prompts were cached, so prefill is compared too. It has the front end."""
    drawn = draw_requests(5, 0, 8000.0, cached_share=0.4)
    served, cached = serve_day(site, FIRST_DAY, drawn, Night(1.1, 0.9))
    (tmp_path / "watched.toml").write_text(CONFIG.replace("PREFIX", "given"))
    logs = load_settings(str(tmp_path / "watched.toml"), tmp_path / "lake")
    size = cached.size
    values = {
        **{"request_id": np.arange(size), "arrived_at": (1e6 * served.arrived).astype(np.int64)},
        **{
            "region": [REGION] * size,
            "llm": [LLM] * size,
            "tier": ["iw_fast"] * size,
            "app": ["chat"] * size,
        },
        **{name: getattr(drawn, name) for name in ("input_tokens", "output_tokens", "cached_tokens")},
        **{"deadline_s": np.full(size, 3600.0), "source": ["log"] * size},
        "source_ttft_s": served.ttft_s + logs.config.fleet.frontend_s,
        "source_e2e_s": served.e2e_s + logs.config.fleet.frontend_s,
    }
    table = pa.table({name: values.get(name, pa.nulls(size)) for name in SCHEMAS["requests"].names})
    table = table.cast(SCHEMAS["requests"])
    logs.lake.write("requests", table, trace=TRACE, day=FIRST_DAY)
    write_tiers(logs.lake, TRACE, logs.catalogue)
    with pytest.raises(LakeError, match="no fleet that ran"):
        witness_day(logs, FIRST_DAY, Progress())
    ran = site.lake.part("ran_fleets", trace=TRACE, day=FIRST_DAY)
    logs.lake.write("ran_fleets", ran.select(SCHEMAS["ran_fleets"].names), trace=TRACE, day=FIRST_DAY)
    parts = parts_of(logs, 0)
    assert parts["decode"]["ratio"] == pytest.approx(0.9, rel=0.02)
    assert parts["prefill"]["ratio"] == pytest.approx(1.1, rel=0.02)
    assert parts["prefill"]["allowed_factor"] > 1.1
    for name in ("source_ttft_s", "source_e2e_s"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pa.nulls(len(table), pa.float64()))
    logs.lake.write("requests", table, trace=TRACE, day=FIRST_DAY)
    with pytest.raises(LakeError, match=r"no measured latencies on 2025-07-01.*fleetcast ingest --from"):
        witness_day(logs, FIRST_DAY, Progress())


def test_another_profile_begins_anew(site: RunSettings) -> None:
    """A profile that was calibrated since is not compared with nights of the old one."""
    profiles = tuple(
        replace(profile, decode_s=tuple(0.9 * s for s in profile.decode_s))
        for profile in site.catalogue.latency
    )
    parts = parts_of(replace(site, catalogue=replace(site.catalogue, latency=profiles)), 1)
    assert parts["decode"]["usual_ratio"] is None
    assert parts["decode"]["ratio"] == pytest.approx(1.0, rel=0.06)


def test_cascades_are_refused(site: RunSettings) -> None:
    run = replace(site.config, replay=replace(site.config.replay, cascades={LLM: ()}))
    with pytest.raises(ValueError, match=r"watched.toml has \[replay.cascades\]"):
        witness_day(replace(site, config=run), FIRST_DAY, Progress())


@pytest.mark.parametrize("known", range(0, 25, 3))
def test_a_phase_is_fitted_to_enough_hours(known: int) -> None:
    """Two thirds of them; the others check it. Of unequal hours the check fails."""
    factors = np.where(np.random.default_rng(known).permutation(24) < known, 1.3, np.nan)
    found = fit_hours({"decode": factors})
    if known < LEAST_FIT_HOURS:
        assert found is None
        return
    assert found is not None
    assert (found.prefill_factor, found.decode_factor, found.hours) == (1.0, 1.3, known)
    assert (found.kept_phases, [check.metric for check in found.checks]) == (["prefill"], ["TPOT"])
    assert found.checks[0].passes
    drifting = fit_hours({"decode": factors * np.linspace(0.7, 1.4, 24)})
    assert drifting is not None
    assert not drifting.checks[0].passes


def test_a_witnessed_night_calibrates_the_profile(site: RunSettings) -> None:
    """The engines decode in 0.9 of the profile's seconds; with the fitted profile they fit."""
    place = (LLM, "h100-80gb", 1, LIMITS)
    with pytest.raises(LakeError, match=r"was not witnessed on 2025-07-09.*fleetcast witness --date"):
        fit_witnessed_profile(site, FIRST_DAY + timedelta(days=8), *place)
    parts_of(site, 1)
    day = FIRST_DAY + timedelta(days=1)
    [before] = [profile for profile in site.catalogue.latency if profile.gpu == "h100-80gb"]
    found, fit = fit_witnessed_profile(site, day, *place)
    assert fit.decode_factor == pytest.approx(0.9, rel=0.03)
    assert (fit.kept_phases, found.prefill_s) == (["prefill"], before.prefill_s), "metrics have cache hits"
    assert all(check.passes for check in fit.checks)
    assert found.source == f"calibrated: {fit.hours} hours of {TRACE}, {day}"
    with pytest.raises(ValueError, match=r"runs llama3.1-8b on 1 x h100-80gb: a night fits the"):
        fit_witnessed_profile(site, day, LLM, "h100-80gb", 2, LIMITS)
    fitted = replace(site, catalogue=replace(site.catalogue, latency=(found,)))
    with pytest.raises(ValueError, match=r"was witnessed with the profile .* fleetcast witness --date"):
        fit_witnessed_profile(fitted, day, *place)
    assert parts_of(fitted, 1)["decode"]["ratio"] == pytest.approx(1.0, abs=0.03)


def test_the_command_prints_the_profile_of_a_night(site: RunSettings, monkeypatch) -> None:
    parts_of(site, 1)
    day = FIRST_DAY + timedelta(days=1)
    file = str(site.config.file)  # the command's lake is the project's
    monkeypatch.setattr("fleetcast.pipelines.options.load_cli_settings", {file: site}.__getitem__)
    command = [
        "calibrate",
        "--witnessed",
        str(day),
        "--config",
        file,
        "--llm",
        LLM,
        "--gpu",
        "h100-80gb",
        "--tensor-parallel",
        "1",
    ]
    answer = CliRunner().invoke(cli_app, command)
    assert answer.exit_code == 0, answer.output
    assert "prefill is kept" in answer.output
    assert "TPOT: an hour" in answer.output
    assert '[[profile]]\nllm = "llama3.1-8b"' in answer.output
    refused = CliRunner().invoke(cli_app, [*command, "log.csv"])
    assert (refused.exit_code, "takes no file" in refused.output) == (2, True)
