"""The promise of advice: versions of a day, the choice of a rule, prices."""

import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcast.assets.advice import nightly_promise, remedies, tomorrow_draws
from fleetcast.assets.advice.advice_config import SizedDeployment
from fleetcast.assets.advice.promise import (
    PROMISE_SHARE,
    VERSIONS_AT_ONCE,
    Evidence,
    Promise,
    PromiseSearch,
    RentedPromise,
    choose_rule,
    share_interval,
    versions_interval,
)
from fleetcast.assets.advice.promise_sections import is_inside, profile_errors_usd, saving_split
from fleetcast.assets.advice.rule_replays import DayDraw, DayFigures, MidnightPlan, SizedRule
from fleetcast.models.traffic.future_days import (
    gather_past_requests,
    measure_errors,
    sample_future_day,
    sample_load_factors,
)
from fleetcast.models.world.catalogue import load_catalogue
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.fleet_config import Deployment
from fleetcast.models.world.prices import (
    PRICES_FILE,
    choose_provider,
    describe_rates,
    load_price_lists,
    price_as_given,
    price_catalogue,
)
from fleetcast.models.world.toml_dataclasses import ConfigError

CATALOGUE = load_catalogue()
OFFICE, LLM = load_config("office", CATALOGUE), "llama3.1-8b"
HOUR_US = 3_600_000_000


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 99), st.floats(0.2, 4.0))
def test_a_sampled_day_has_the_tokens_of_the_forecast(seed: int, factor: float) -> None:
    """Over many requests; requests stay in their hour, up to the half minute of a copy."""
    rng = np.random.default_rng(seed)
    days = [np.sort(rng.integers(0, 24 * HOUR_US, 20_000)) for _ in range(2)]
    series = [rng.integers(0, 2, at.size) for at in days]
    past = gather_past_requests(days, series, [np.ones(at.size) for at in days], 2)
    target = factor * past.levels.mean(axis=0)
    rows, at_us = sample_future_day(past, target, rng)
    assert (np.diff(at_us) >= 0).all()
    assert rows.size == pytest.approx(target.sum(), rel=0.08)
    for code in range(2):
        assert (past.series[rows] == code).sum() == pytest.approx(target[:, code].sum(), rel=0.12)
    far_us = np.abs(at_us % HOUR_US - past.arrived_us[rows] % HOUR_US)
    hours = at_us // HOUR_US - past.arrived_us[rows] // HOUR_US
    assert (np.abs(hours) <= 1).all()
    assert far_us.max() <= HOUR_US


def test_load_factors_follow_the_errors_of_past_forecasts() -> None:
    """Three days came 20 % above a sharp forecast; without days only the quantiles spread."""
    forecast = np.full((3, 24, 1), 100.0)
    sure = measure_errors(1.2 * forecast, forecast, forecast, 1.01 * forecast)
    assert sure.levels == pytest.approx(np.log(1.2))
    factors = sample_load_factors(sure, 1, 40, np.random.default_rng(1))
    assert factors.shape == (40, 24, 1)
    assert np.median(factors) == pytest.approx(1.2**0.5, rel=0.02)  # three days of six count
    unknown = measure_errors(np.full_like(forecast, np.nan), forecast, forecast, 3 * forecast)
    wide = sample_load_factors(unknown, 1, 40, np.random.default_rng(1))
    assert unknown.levels.size == 0
    assert (sure.prior_sigma, unknown.prior_sigma) == (0.05, 0.25), (
        "quantiles of 1.01 and of 3 are out of bounds"
    )
    assert wide.std() > factors.std()
    assert np.median(wide) == pytest.approx(1.0, abs=0.05)


def figures(share: float, usd: float) -> DayFigures:
    """A day with one tier."""
    return DayFigures({"iw_fast": share}, share, usd, usd, np.zeros((24, 1)))


class MadeSearch(PromiseSearch):
    """A search whose replays are a formula: attainment grows with headroom, and so does cost."""

    def __init__(self, costs: dict[str, float], needs: dict[str, float], days: int = 3) -> None:
        self.costs, self.needs, self.days = costs, needs, days
        self.settings: Any = type("Settings", (), {"catalogue": CATALOGUE})()
        self.plan = MidnightPlan(date(2025, 7, 1), *[np.zeros(0)] * 3)
        self.past: Any = [None] * days
        self.draws: Any = [None] * 20
        self._past, self._future = {}, {}

    def made(self, sized: SizedRule, count: int) -> list[DayFigures]:
        """Days that all miss the target below the headroom that the rule needs."""
        share = 0.97 if sized.headroom_share >= self.needs[sized.rule] - 1e-9 else 0.90
        return [figures(share, self.costs[sized.rule] * (1 + sized.headroom_share))] * count

    def past_days(self, sized: SizedRule) -> list[DayFigures]:
        return self._past.setdefault(sized, self.made(sized, self.days))

    def replay_versions(self, sized: SizedRule, numbers: range) -> list[DayFigures]:
        return self.made(sized, len(numbers))

    def with_draws(self, draws: Sequence[DayDraw]) -> "MadeSearch":
        """As in versions whose engines are as fast as their profiles: a third of the headroom is enough."""
        return MadeSearch(self.costs, {rule: needed / 3 for rule, needed in self.needs.items()}, self.days)


NEEDS = {"static": 0.0, "day_ahead": 0.3, "reflex": 0.1, "compact": 0.0}


def test_the_leanest_rule_that_keeps_its_promise_is_advised() -> None:
    costs = {"static": 200.0, "day_ahead": 120.0, "reflex": 130.0, "compact": 150.0}
    found = choose_rule(MadeSearch(costs, NEEDS), 10.0)
    assert (found.is_kept, found.advised.sized) == (True, SizedRule("reflex", 0.1))  # 143 USD; day_ahead: 156
    assert found.sized["day_ahead"].sized == SizedRule("day_ahead", 0.3)
    cheap = {**costs, "static": 144.0}  # nearly as cheap, and the simplest
    assert choose_rule(MadeSearch(cheap, NEEDS), 10.0).advised.sized == SizedRule("static")
    assert choose_rule(MadeSearch(costs, NEEDS), 199.0).sized.keys() == {
        "static"
    }  # the minimum costs as much


@pytest.mark.parametrize(("needed", "without"), [(0.0, 0.0), (0.3, 0.1), (0.6, 0.2), (4.0, 1.5)])
def test_errors_of_profiles_cost_the_headroom_that_only_they_require(needed: float, without: float) -> None:
    """The least headroom on the list: a third of 4.0 is above 1.2. A rule that needs none pays nothing."""
    search = MadeSearch({"day_ahead": 100.0}, {"day_ahead": needed})
    sized = search.size_rule("day_ahead")
    assert sized == SizedRule("day_ahead", needed)
    usd = profile_errors_usd(search.with_draws([]), sized)
    assert usd == pytest.approx(100.0 * (needed - without))


def test_without_a_fleet_that_keeps_its_promise_the_closest_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of equal shares the cheapest: five times the fleet is no better where nothing helps."""
    costs = {"static": 200.0, "day_ahead": 120.0, "reflex": 130.0, "compact": 150.0}
    search = MadeSearch(costs, dict.fromkeys(NEEDS, 99.0))
    found = choose_rule(search, 10.0)
    assert (found.is_kept, found.sized, found.advised.sized) == (False, {}, SizedRule("day_ahead"))
    assert search.known_past_days(SizedRule("compact")) is None, "slow, and instances are not what lacks"

    def replay_versions(sized: SizedRule, numbers: range) -> list[DayFigures]:
        met = min(16, int(20 * sized.headroom_share)) if sized.rule == "reflex" else 3
        return [figures(0.97 if number < met else 0.9, 1.0) for number in numbers]

    search = MadeSearch(costs, dict.fromkeys(NEEDS, 99.0))
    monkeypatch.setattr(search, "replay_versions", replay_versions)
    assert choose_rule(search, 10.0).advised.sized == SizedRule("reflex", 0.8)  # 16 of 20, as with 4.0


@pytest.mark.parametrize(
    ("past", "future", "is_promise"),
    [
        ([0.97] * 3, [0.97] * 18 + [0.9] * 2, True),
        ([0.97] * 3, [0.97] * 17 + [0.9] * 3, False),
        ([0.97, 0.97, 0.9], [0.97] * 20, False),
        ([0.97] * 4 + [0.9], [0.97] * 20, True),  # one of five may miss
        ([0.97] * 3 + [0.9] * 2, [0.97] * 20, False),
    ],
)
def test_a_promise_needs_the_versions_and_the_past_days(
    past: list[float], future: list[float], is_promise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = MadeSearch({}, {})
    monkeypatch.setattr(search, "past_days", lambda _: [figures(share, 1.0) for share in past])
    monkeypatch.setattr(
        search, "replay_versions", lambda _, numbers: [figures(future[number], 1.0) for number in numbers]
    )
    assert search.is_promise(SizedRule("static")) is is_promise


def test_of_the_least_versions_one_in_ten_may_miss() -> None:
    """Of whole tens: of 20 two may miss, and of 21 no more."""
    for versions in (nightly_promise.LEAST_VERSIONS, tomorrow_draws.MOST_DRAWS):
        assert versions * (1 - PROMISE_SHARE) == pytest.approx(versions // 10)
        assert versions // 10 >= 2


def test_a_size_that_misses_is_not_replayed_on_all_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was replayed before, each version is replayed once and the share is of all of them."""
    replayed = list[int]()
    search = MadeSearch({"static": 1.0}, NEEDS)

    def replay_versions(_: SizedRule, numbers: range) -> list[DayFigures]:
        replayed.extend(numbers)
        return [figures(0.9 if number in (0, 1, 2, 17) else 0.97, 1.0) for number in numbers]

    monkeypatch.setattr(search, "replay_versions", replay_versions)
    sized = SizedRule("static")
    assert not search.is_promise(sized)
    assert replayed == list(range(VERSIONS_AT_ONCE))
    assert (search.misses_more_than(sized, 3), search.misses_more_than(sized, 4)) == (True, False)
    assert search.kept_share(sized) == 0.8
    assert replayed == list(range(20))


def test_a_saving_without_spread_has_no_interval() -> None:
    search = MadeSearch({"static": 200.0, "day_ahead": 100.0}, NEEDS)
    static, plan = (search.evidence(SizedRule(rule)) for rule in ("static", "day_ahead"))
    split = saving_split(Promise(plan, True, {"static": static}))
    assert split["by_hours"] == {"usd": 100.0, "usd_low": None, "usd_high": None}
    assert split["batch_in_gaps"] is split["right_size"] is split["gpu_type"] is None
    assert saving_split(Promise(plan, False, {}), 500.0) == {}  # nothing is advised


def test_the_parts_of_the_saving_add_up() -> None:
    """From today's fleet to one of the right size, then to the advised rule, then to other GPUs."""
    static = Evidence(SizedRule("static"), [], [figures(1, usd) for usd in (200, 220, 240)])
    plan = Evidence(SizedRule("day_ahead"), [], [figures(1, usd) for usd in (90, 110, 100)])
    rented = Evidence(SizedRule("static"), [], [figures(1, usd) for usd in (50, 60, 55)])
    found = Promise(plan, True, {"static": static, "day_ahead": plan})
    split = saving_split(found, 500.0, RentedPromise("2 x other", rented))
    right, hours, gpus = (split[name] for name in ("right_size", "by_hours", "gpu_type"))
    assert (right["usd"], hours["usd"], gpus["usd"], gpus["fleet"]) == (280.0, 120.0, 45.0, "2 x other")
    assert right["usd"] + hours["usd"] + gpus["usd"] == 500.0 - np.mean([50, 60, 55])
    assert gpus["usd_high"] - gpus["usd"] == pytest.approx(4.303 * 5 * (4 / 3) ** 0.5, rel=1e-3)
    assert saving_split(found, 500.0, RentedPromise("dearer", static))["gpu_type"] is None
    assert right["usd_high"] - right["usd"] == pytest.approx(4.303 * 20 * (4 / 3) ** 0.5, rel=1e-3)
    assert right["usd"] - right["usd_low"] == pytest.approx(right["usd_high"] - right["usd"])


def test_an_interval_is_rounded_outwards() -> None:
    assert share_interval(np.full(40, 0.9994)) == (0.998, 1.0)
    low, high = share_interval(np.linspace(0.9, 1.0, 41))
    assert low < 0.9025 < 0.9975 <= high
    assert is_inside(0.95, 0.9, 0.95)
    assert not is_inside(0.951, 0.9, 0.95)


@pytest.mark.parametrize("versions", [8, 40])
def test_a_day_like_its_versions_lies_inside_nineteen_times_in_twenty(versions: int) -> None:
    """Two such intervals hold nine times in ten."""
    cost = np.random.default_rng(1).normal(600.0, 50.0, (20_000, versions + 1))
    inside = [is_inside(row[0], *versions_interval(row[1:])) for row in cost]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.006)


def test_prices_are_of_one_provider(tmp_path: Path) -> None:
    lists = load_price_lists(CATALOGUE)
    assert all(prices.date == date(2026, 6, 1) for prices in lists.values())
    assert choose_provider(lists, None, ["h200-141gb", "b200-180gb"], "") == "oci"
    aws = price_catalogue(CATALOGUE, lists["aws"])
    assert (aws.gpus["h100-80gb"].usd_per_hour, aws.gpus["b200-180gb"].usd_per_hour) == (8.256, 0.0)
    with pytest.raises(
        ConfigError, match=r"no price of b200-180gb from aws\. Leave that type out, name another --provider"
    ):
        choose_provider(lists, "aws", ["b200-180gb"], PRICES_FILE.name)
    with pytest.raises(ConfigError, match="acme"):
        choose_provider(lists, "acme", [], "")
    own = tmp_path / "own.toml"
    own.write_text("h100-80gb = 2\nl4-24gb = 0.5\n")
    own_catalogue, seller = price_as_given(CATALOGUE, ["h100-80gb"], None, own)
    usd = {gpu: own_catalogue.gpus[gpu].usd_per_hour for gpu in ("h100-80gb", "l4-24gb", "b200-180gb")}
    assert usd == {"h100-80gb": 2.0, "l4-24gb": 0.5, "b200-180gb": 0.0}
    assert re.fullmatch(r"prices of own, \d{4}-\d\d-\d\d", seller)
    assert describe_rates(own_catalogue, ["h100-80gb", "b200-180gb"]) == "2.00 USD per h100-80gb hour"
    kept, seller = price_as_given(CATALOGUE, ["h100-80gb"], None, None)
    assert kept is CATALOGUE
    assert "of different sellers" in seller
    own.write_text('[mine]\ndate = 2026-11-01\nsource = "contract"\non_demand = { b999 = 1.0 }\n')
    with pytest.raises(ConfigError, match="b999"):
        load_price_lists(CATALOGUE, own)
    with pytest.raises(ConfigError, match="There is no file"):
        load_price_lists(CATALOGUE, tmp_path / "none.toml")


def remedy(tokens: int, gpu: str, others: list[str], draws: int = 10) -> str:
    """The remedy for one request of so many tokens every 20 s, on instances of one GPU."""
    rows = pd.DataFrame(
        {
            "arrival_s": 20.0 * np.arange(12),
            **{"llm": LLM, "tier": "iw_fast", "input_tokens": tokens, "output_tokens": 20},
            **{"cached_tokens": None, "prefix_hashes": None},
        }
    )
    sized = {LLM: SizedDeployment(Deployment(gpu, 1), 3)}
    unused: Any = None  # settings: the requests are given
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remedies, "read_requests_of_day", lambda settings, day: rows)
        return remedies.describe_remedy(
            unused, date(2025, 7, 1) if draws else None, sized, {LLM: others}, CATALOGUE, OFFICE, draws
        )


def test_the_remedy_is_the_cheapest_instance_that_attains_without_a_queue() -> None:
    """Prompts of 20,000 tokens are too long for one or two L40S, however many instances there are."""
    usd = CATALOGUE.gpus["h100-80gb"].usd_per_hour
    sentence = remedy(20_000, "l40s-48gb", ["l40s-48gb", "h100-80gb"])
    assert "attains 0 % of its target even with 32 instances: 1 x h100-80gb per instance would" in sentence
    assert f"({usd:,.2f} USD" in sentence
    assert usd < 4 * CATALOGUE.gpus["l40s-48gb"].usd_per_hour
    unlimited = remedy(20_000, "h100-80gb", ["l40s-48gb"])
    assert unlimited == "With 32 instances of each llm the requests of 2025-07-01 attain it: raise " + (
        "max_instances in advice.toml."
    )


def test_the_remedy_does_not_name_instances_where_the_error_of_a_profile_misses() -> None:
    """Prompts of 12,000 tokens are in time on an L40S as fast as its profile, and not on a slower one."""
    sentence = remedy(12_000, "l40s-48gb", ["l40s-48gb", "h100-80gb"])
    assert "but not with the error of the profile, even with 32 instances: 1 x h100-80gb" in sentence
    assert "max_instances" not in sentence
    assert "no GPU type here would; run fleetcast calibrate" in remedy(12_000, "l40s-48gb", [])
    short = remedy(12_000, "l40s-48gb", [], draws=0)
    assert "the requests of the trace attain it: name a larger --fleet" in short, "sized without errors"


def test_a_fleet_that_misses_attains_at_most_99_percent_of_its_target() -> None:
    """Up to the last share below the target a percentage is named, of 99 at most; from it on, the error."""
    for share, begin in (
        (0.996, "attains 99 %"),
        (np.nextafter(1.0, 0.0), "attains 99 %"),
        (1.0, "attains its"),
    ):
        assert remedies.describe_miss(share).startswith(f"{begin} ")
