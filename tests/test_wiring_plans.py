"""What demand, forecasts and config hand to the plans, field by field, and what the plans' table says of it.

The day is wired.py's: what came is counted here from the requests themselves, and each forecast is another
multiple of it.
"""

import dataclasses
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from wired import DAY, LLMS, PAPER_FACTOR, REGIONS, SUSTAINED, TIERS, changed, requests

from fleetcast.assets.lake.settings import Progress, RunSettings
from fleetcast.assets.plans import measured_capacity, plan_loads, plans, problems, request_mixes
from fleetcast.assets.replays.policy_inputs import (
    fleet_and_rules,
    policy_schedules,
    reactive_capacity_share,
    with_measured_capacity,
)
from fleetcast.assets.replays.replays import read_capacity
from fleetcast.assets.studies.whatif import plan_whatif_cases
from fleetcast.assets.studies.whatif_cases import resolve_cases
from fleetcast.models.plan.problem import Problem
from fleetcast.models.plan.solver import SolverOptions

SLOWER = np.array([1.0, 1.25])  # boots by GPU type
WINDOWS, NIW = 3, TIERS.index("niw")
FORECAST = np.array([PAPER_FACTOR[region] for region in REGIONS])[:, None]  # (regions, windows)
SHARES = {
    "forecast": 0.71,
    "peak": 0.71,
    "melange": 0.71,
    "corrected": 0.93,
    "day_ahead": 0.93,
    "truth": 0.93,
}
KINDS = {  # whose plan is of which kind
    **{"static": "peak", "melange": "melange", "lt_i": "forecast", "lt_u": "forecast", "lt_ua": "forecast"},
    **{
        "corrected": "corrected",
        "corrected_combos": "corrected",
        "day_ahead": "day_ahead",
        "clairvoyant": "truth",
    },
}
PROGRAMMES = {"forecast": "paper", "peak": "paper", "melange": "melange"}  # the others: corrected


def came(back: int = 0, *, niw: bool = False) -> np.ndarray:
    """Input tokens/s of the day so many days back: (hours, llms, regions, windows)."""
    day = requests(DAY - timedelta(days=back))
    window = day.arrived_us // (3_600_000_000 // WINDOWS)
    total = np.zeros((24 * WINDOWS, len(LLMS), len(REGIONS)))
    own = (day.tier == NIW) == niw
    np.add.at(total, (window[own], day.llm[own], day.region[own]), day.input_tokens[own])
    per_s = total * WINDOWS / 3600.0
    return np.moveaxis(per_s.reshape(24, WINDOWS, len(LLMS), len(REGIONS)), 1, -1)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-9)


@pytest.fixture(scope="module")
def loads(wired_day: RunSettings) -> dict[str, plan_loads.PlanLoad]:
    return plan_loads.day_loads(wired_day, DAY)


@pytest.fixture(scope="module")
def table(wired_day: RunSettings) -> pd.DataFrame:
    """The plans of the day in the order of hours, llms and regions, only on the GPU type that is deployed."""
    rows = wired_day.lake.read("plans", trace=wired_day.trace, day=DAY).to_pandas()
    order = rows.assign(i=rows["llm"].map(LLMS.index), j=rows["served_region"].map(REGIONS.index))
    return order.sort_values(["policy", "hour_start", "i", "j"]).set_index("policy")


def of(table: pd.DataFrame, policy: str, column: str) -> np.ndarray:
    """A column of a policy's plan: (hours, llms, regions)."""
    return table.loc[policy, column].to_numpy().reshape(24, len(LLMS), len(REGIONS))


# --- the load as each kind of plan sees it -------------------------------------------------------------


def test_the_papers_plans_cover_the_maximum_of_the_hours_forecast_by_the_papers_method(loads) -> None:
    demand = loads["forecast"].demand
    assert demand.shape == (24, len(LLMS), len(REGIONS), 1)
    close(demand[..., 0], (FORECAST * came()).max(axis=-1))


def test_the_corrected_plan_covers_the_planned_methods_quantile_window_by_window(loads) -> None:
    close(loads["corrected"].demand, 1.6 * came())  # p95 of the peak, along the mean


def test_the_clairvoyant_covers_what_came(loads) -> None:
    close(loads["truth"].demand, came())


def test_the_buffer_of_an_hour_is_the_niw_of_the_hour_before(loads) -> None:
    niw = 0.23 * np.concatenate([came(1, niw=True)[-1:], came(niw=True)]).mean(axis=-1)
    assert niw[0].all()
    close(loads["forecast"].buffer, niw[:-1])
    close(loads["corrected"].buffer, niw[:-1])
    close(loads["truth"].buffer, niw[1:])  # no other code may know it


def test_the_peak_is_that_of_the_days_before(loads) -> None:
    past = np.concatenate([came(2), came(1)])
    close(loads["peak"].demand[..., 0], past.max(axis=-1))
    niw = np.concatenate([came(2, niw=True), came(1, niw=True)])
    close(loads["peak"].buffer, 0.23 * niw.mean(axis=-1))


def test_history_length_comes_from_the_config(wired_day: RunSettings) -> None:
    short = changed(wired_day, "forecast", history_days=1)
    close(plan_loads.day_loads(short, DAY)["peak"].demand[..., 0], came(1).max(axis=-1))


def test_the_day_ahead_covers_the_quantile_foreseen_at_midnight_and_the_niw_of_the_day_before(
    wired_day: RunSettings,
) -> None:
    load = plan_loads.day_ahead_load(wired_day, DAY)
    close(load.demand, 3.2 * came())
    close(load.buffer, 0.23 * came(1, niw=True).mean(axis=-1))


@pytest.mark.parametrize(("quantile", "factor"), [(0.5, 1.0), (0.9, 1.3), (0.95, 1.6)])
def test_each_quantile_is_read_from_its_own_column(wired_day: RunSettings, quantile, factor) -> None:
    own = changed(wired_day, "plan", quantile=quantile)
    close(plan_loads.read_forecast_windows(own, DAY, "seasonal_naive")[1], factor * came())


# --- inputs of an hour -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", plans.PLAN_SOLVERS)
def test_problem_has_capacities_prices_and_limits_of_config_and_catalogue(
    wired_day: RunSettings, kind: str
) -> None:
    problem_fields = problems.problem_template(wired_day.grid, wired_day.config, SUSTAINED, kind)._asdict()
    names = (
        problem_fields.pop("llms"),
        problem_fields.pop("regions"),
        problem_fields.pop("gpus"),
        problem_fields.pop("roles"),
    )
    assert names == (LLMS, REGIONS, ("h100-80gb", "a100-80gb"), ("whole", "whole"))
    assert problem_fields.pop("options") == ("4 x h100-80gb", "8 x a100-80gb")
    bloom, llama = (share * SHARES[kind] for share in SUSTAINED)
    nothing = np.zeros((2, 3))
    expected = {
        "instances_now": np.array([[[0, 8]] * 3, [[8, 0]] * 3]),
        "spot": np.zeros((2, 3, 2)),
        "tokens_per_s": np.array([[np.nan, bloom], [llama, np.nan]]),
        "size_shares": np.ones((4, 2, 2)),
        "usd_per_hour": np.array([[0.0, 8 * 3.25], [4 * 9.5, 0.0]]),
        **{"demand_tokens_per_s": nothing[..., None], "buffer_tokens_per_s": nothing},
        "uses": np.array([[[0, 0], [0, 8]], [[4, 0], [0, 0]]]),
        "min_option_instances": np.array([[[0, 1]] * 3, [[1, 0]] * 3]),
        "max_option_instances": np.array([[[0, 13]] * 3, [[13, 0]] * 3]),
        "cap_gpus": np.array([[53, 101], [47, 97], [43, 89]]),
        **{"min_instances": nothing + 1, "max_instances": nothing + 13, "budget_usd": np.inf},
        **{"epsilon": 0.65, "window_s": 1200.0, "hours": 1.0},
        "boot_spot_s": np.full((2, 2), 45.0) * SLOWER,
        "boot_cold_s": np.array([[480.0, 480.0, 1500.0], [1500.0, 480.0, 480.0]])[..., None] * SLOWER,
        **{"spot_earning_share": 0.84, "hysteresis_share": 0.06, "export_share": 0.04},
    }
    assert problem_fields.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(problem_fields[name], value, err_msg=name)


@pytest.mark.parametrize("kind", plans.PLAN_SOLVERS)
def test_each_kind_is_solved_by_its_programme_with_the_configs_options(
    wired_day: RunSettings, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    programme = PROGRAMMES.get(kind, "corrected")
    honest, given = plans.PLAN_SOLVERS[kind], []

    def heard(problem: Problem, options: SolverOptions):
        given.append(options)
        return honest(problem, options)

    monkeypatch.setitem(plans.PLAN_SOLVERS, kind, heard)
    plan = plans.checked_solver(wired_day, kind)(
        problems.problem_template(wired_day.grid, wired_day.config, SUSTAINED, kind)
    )
    assert given == [SolverOptions("cbc", gap_share=0.01, time_limit_s=9.0)]
    assert (plan.programme, plan.solver) == (programme, "cbc")


@pytest.mark.parametrize("kind", plans.PLAN_SOLVERS)
def test_what_small_pools_sustain_is_measured_for_fleetcasts_plans_alone(
    wired_day: RunSettings, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(measured_capacity, "MEASURED_SIZES", {})
    of_size = {1: (0.5, 0.25), 2: (0.75, 1.5)}
    monkeypatch.setattr(
        measured_capacity,
        "measure_capacities",
        lambda _settings, _day, _progress, count: np.multiply(of_size[count], SUSTAINED).tolist(),
    )
    plain = problems.problem_template(wired_day.grid, wired_day.config, SUSTAINED, kind)
    plan = dataclasses.replace(wired_day.config.plan, capacity_by_size=False)
    unaware = wired_day.with_config(plan=plan)
    for settings, is_known in ((unaware, False), (wired_day, kind not in PROGRAMMES)):
        found = problems.with_size_shares(plain, settings, DAY, kind).size_shares
        shares = {"bloom-176b": [0.5, 0.75, 0.875, 1.0], "llama2-70b": [0.25, 1.0, 1.0, 1.0]}
        for i, k, llm in ((0, 1, "bloom-176b"), (1, 0, "llama2-70b")):
            assert found[:, i, k].tolist() == (shares[llm] if is_known else [1.0] * 4)
        assert (found[:, [0, 1], [0, 1]] == 1).all()  # where an llm does not run


def test_capacity_is_measured_on_the_interactive_requests_of_the_day_before(
    wired_day: RunSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem_fields = {}

    def measured(llm, deployment, catalogue, config, inputs, outputs, partner, cached, instances) -> float:
        assert (partner, instances) == (None, 3)
        problem_fields[llm] = (
            deployment,
            sorted(zip(inputs.tolist(), outputs.tolist(), cached.tolist(), strict=True)),
        )
        interactive = wired_day.catalogue.with_tiers(("iw_fast", "iw_normal"))  # whose targets count
        assert (list(catalogue.tiers), catalogue, config) == (
            ["iw_fast", "iw_normal"],
            interactive,
            wired_day.config,
        )
        return SUSTAINED[LLMS.index(llm)]

    monkeypatch.setattr(measured_capacity, "measure_capacity_tokens_per_s", measured)
    assert measured_capacity.measure_capacities(wired_day, DAY, Progress(), 3) == list(SUSTAINED)
    before = requests(DAY - timedelta(days=1))
    for code, llm in enumerate(LLMS):
        own = (before.llm == code) & (before.tier != NIW)
        cached = np.where(np.arange(own.size) % 5 == 0, 0, before.input_tokens // 3)
        columns = (before.input_tokens, before.output_tokens, cached)
        tokens = zip(*(column[own].tolist() for column in columns), strict=True)
        assert (problem_fields[llm][0],) == wired_day.config.fleet.deployments[llm]
        known = sorted(tokens)
        assert (
            problem_fields[llm][1] == known
            if len(known) <= request_mixes.MIX_SAMPLE
            else set(problem_fields[llm][1]) <= set(known)
        )
    assert len(problem_fields[LLMS[0]][1]) > 1000


# --- the table -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "kind"), KINDS.items())
def test_a_policys_plan_is_made_of_the_load_and_the_capacity_of_its_kind(
    wired_day: RunSettings, loads, table, policy: str, kind: str
) -> None:
    every = {**loads, "day_ahead": plan_loads.day_ahead_load(wired_day, DAY), "melange": loads["peak"]}
    theta = SHARES[kind] * np.array(SUSTAINED)[:, None]
    close(of(table, policy, "capacity_tokens_per_s"), theta)
    demand, buffer = every[kind]
    if kind in ("peak", "melange"):  # one allocation for the largest load that each region has had
        demand, buffer = demand.max(axis=0), buffer.max(axis=0)
    close(of(table, policy, "demand_tokens_per_s"), demand.max(axis=-1))
    close(of(table, policy, "buffer_tokens_per_s"), buffer)
    programme = PROGRAMMES.get(kind, "corrected")
    assert set(table.loc[policy, "programme"]) == {programme}


def test_a_policy_of_ones_own_is_planned_with_its_own_figures(wired_day: RunSettings, table) -> None:
    close(of(table, "lean", "capacity_tokens_per_s"), 0.5 * np.array(SUSTAINED)[:, None])
    own = plan_loads.day_loads(changed(wired_day, "plan", quantile=0.9), DAY)["corrected"]
    close(of(table, "lean", "demand_tokens_per_s"), own.demand.max(axis=-1))
    assert (of(table, "lean", "instances_before")[0] == of(table, "lt_i", "instances")[0]).all()
    assert (of(table, "hasty", "instances") == of(table, "lt_ua", "instances")).all()


def test_a_plan_in_slots_covers_each_by_itself_and_is_followed_slot_by_slot(
    wired_day: RunSettings, table
) -> None:
    slots = table.loc["brisk"]
    of_slots = {
        name: slots[name].to_numpy().reshape(24 * WINDOWS, len(LLMS), len(REGIONS))
        for name in ("hour_start", "demand_tokens_per_s", "instances_before", "instances", "usd")
    }
    close(
        of_slots["demand_tokens_per_s"], 1.6 * np.moveaxis(came(), -1, 1).reshape(-1, len(LLMS), len(REGIONS))
    )
    starts = pd.to_datetime(slots["hour_start"]).unique()
    assert (np.diff(starts) == pd.Timedelta(minutes=20)).all()
    held = of_slots["instances"]
    assert (of_slots["instances_before"][0] == of(table, "lt_i", "instances")[0]).all()
    assert (of_slots["instances_before"][1:] == held[:-1]).all()
    changes = (held[1:] != held[:-1]).any(axis=(1, 2))
    assert all(changes[first::WINDOWS].any() for first in range(WINDOWS))
    close(of_slots["usd"], held * np.array([8 * 3.25, 4 * 9.5])[:, None] / WINDOWS)
    drive = policy_schedules(wired_day, DAY)["brisk"]
    assert drive.row_s == 1200.0
    close(np.asarray(drive.targets), held.reshape(24 * WINDOWS, -1))
    close(np.asarray(drive.forecast_tokens_per_s), of_slots["demand_tokens_per_s"])


@pytest.mark.parametrize("policy", ["reactive", "lt_ua", "corrected", "lean", "brisk", "hasty"])
def test_a_case_without_changes_is_replayed_as_the_night_is(
    wired_day: RunSettings, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setattr(measured_capacity, "measure_capacities", lambda *_: list(SUSTAINED))
    own = changed(wired_day, "plan", solver="highs")  # as the night
    [trial] = plan_whatif_cases(resolve_cases(own, ["as_is"], policy), DAY, Progress(), policy)
    for found, of_night in zip(trial.schedule, policy_schedules(own, DAY)[policy], strict=True):
        np.testing.assert_array_equal(found, of_night)
    capacity = read_capacity(own, DAY, None) * reactive_capacity_share(own.config, policy)
    fleet = with_measured_capacity(own.under(policy), fleet_and_rules(own, policy)[0], capacity)
    for name in ("tokens_per_s", "weight", "min_instances"):
        close(getattr(trial.fleet, name), getattr(fleet, name))


def test_teams_are_planned_by_the_quarter_where_they_boot_in_half_of_one(wired_day: RunSettings) -> None:
    """What a config says of a policy of its own holds in any case."""
    for bucket, boot_s, slots in ((15, 450.0, 4), (15, 451.0, 1), (20, 60.0, 1)):
        forecast = dataclasses.replace(wired_day.config.forecast, bucket_minutes=bucket)
        own = changed(wired_day, "replay", boot_local_s=boot_s)
        config = dataclasses.replace(own.config, forecast=forecast)
        problem_fields = ("corrected_combos", "corrected", "brisk", "lt_i")
        assert [config.slots(name) for name in problem_fields] == [slots, 1, 3, 1]


def test_plans_begin_where_the_papers_first_hour_ends_and_cost_what_their_gpus_cost(table) -> None:
    first = of(table, "lt_i", "instances")[0]
    assert (of(table, "lt_i", "instances_before")[0] == 8).all()
    for policy in ("corrected", "day_ahead", "clairvoyant", "melange"):
        assert (of(table, policy, "instances_before")[0] == first).all()
    for policy in KINDS:
        held = of(table, policy, "instances")
        assert (of(table, policy, "instances_before")[1:] == held[:-1]).all()
        close(of(table, policy, "usd"), held * np.array([8 * 3.25, 4 * 9.5])[:, None])
        assert (of(table, policy, "gpus_per_instance") == np.array([[8], [4]])).all()
    assert not np.array_equal(of(table, "lt_i", "instances"), of(table, "corrected", "instances"))
    for policy in ("static", "melange"):
        assert (of(table, policy, "instances") == of(table, policy, "instances")[0]).all()
    for policy in ("lt_u", "lt_ua"):
        assert (of(table, policy, "instances") == of(table, "lt_i", "instances")).all()


def test_the_least_that_any_fleet_costs_counts_on_whole_instances(wired_day: RunSettings) -> None:
    """With the whole of what an instance sustains, whatever share a plan counts on."""
    bounds = wired_day.lake.read("plan_bounds", trace=wired_day.trace, day=DAY).to_pandas()
    usd_per_token = np.array([8 * 3.25, 4 * 9.5]) / np.array(SUSTAINED)
    fluid = (came().sum(axis=2).mean(axis=-1) * usd_per_token).sum(axis=-1)
    close(bounds.sort_values("hour_start")["fluid_usd"].to_numpy(), fluid)


def test_plan_serves_more_when_required_attainment_rises(wired_day: RunSettings, loads) -> None:
    """The share of capacity and the limits reach the answer, not only the question."""

    def held(settings: RunSettings, kind: str = "corrected") -> np.ndarray:
        template = problems.problem_template(settings.grid, settings.config, SUSTAINED, kind)
        hour = problems.hour_problems(template, loads[kind])[4]
        return plans.checked_solver(settings, kind)(hour).instances.sum(axis=2)

    usual = held(wired_day)
    assert usual.min() < 13
    assert held(changed(wired_day, "plan", corrected_capacity_share=0.3)).sum() > 1.5 * usual.sum()
    assert held(changed(wired_day, "fleet", max_instances=2, instances_at_start=2)).max() == 2
    assert held(changed(wired_day, "fleet", min_instances=6)).min() == 6
    paper = held(wired_day, "forecast")
    assert held(changed(wired_day, "plan", capacity_share=0.3), "forecast").sum() > 1.5 * paper.sum()
