"""A policy that learns its capacity share: the loop over days holds its target, and the night carries it."""

from collections.abc import Callable
from datetime import date, timedelta
from math import exp, log, sqrt
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.dates import num2date
from small import small_config

from fleetcast.assets.lake.learned_shares import learning_policies, with_learned_shares
from fleetcast.assets.lake.settings import Progress, RunSettings, load_settings
from fleetcast.assets.pages.asset_metadata import SettingsResource
from fleetcast.assets.pages.figure_files import draw_day_figures
from fleetcast.assets.plans import measured_capacity
from fleetcast.assets.replays.replay_figures import replay_drawings
from fleetcast.assets.studies import latency_error
from fleetcast.assets.studies.unseen_days import compare_on_unseen_days, last_days
from fleetcast.models.plan.learned_share import (
    LARGEST_FALL,
    LARGEST_RISE,
    LARGEST_SHARE,
    ScoredDay,
    learn_share,
)
from fleetcast.models.world.toml_dataclasses import ConfigError
from fleetcast.pipelines.nightly_run import replay_policy, run_night

MOST_RATIO = 1 / 0.95  # all requests are in time
# Attainment over target by the logarithm of the share: even, with a knee, and with two cliffs.
CURVES: dict[str, Callable[[float], float]] = {
    "even": lambda x: 1.03 - 0.06 * x,
    "knee": lambda x: 1.052 - 0.02 * exp(3 * x),
    "cliff": lambda x: 1.05 - 0.25 / (1 + exp(-12 * (x - 0.35))),
    "steep": lambda x: 1.05 - 0.6 / (1 + exp(-20 * (x - 0.2))),
}


def learn_over_days(
    curve: Callable[[float], float], spread: float, drift: float, seed: int, first: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Attained ratios of 60 made days, and the margins that they should have. Weekends are easier."""
    rng, days, share, off = np.random.default_rng(seed), list[ScoredDay](), first, 0.0
    margins = [0.0]
    for number in range(60):
        off = 0.3 * off + sqrt(1 - 0.3**2) * spread * rng.normal()
        easy = 0.005 if number % 7 > 4 else 0.0
        days.append(ScoredDay(share, min(MOST_RATIO, curve(log(share) + drift * number) + easy + off)))
        share, margin = learn_share(days)
        margins.append(margin)
    return np.array([day.attained_ratio for day in days]), np.array(margins[:-1])


@pytest.mark.parametrize("curve", list(CURVES))
@pytest.mark.parametrize("drift", [-0.003, 0.0, 0.003])
@pytest.mark.parametrize("spread", [0.002, 0.008])
def test_attainment_stays_at_the_target_and_its_margin(curve: str, drift: float, spread: float) -> None:
    """Over 60 days its mean is within 0.3 points; at most one day in twenty is short by a point."""
    learned = 15  # days until the start no longer matters
    for seed in range(5):
        ratios, margins = learn_over_days(CURVES[curve], spread, drift, seed)
        off = ratios[learned:].mean() - 1 - margins[learned:].mean()
        assert abs(off) * 0.95 <= 0.003, (seed, off)
        assert (ratios[learned:] < 1 - 0.01 / 0.95).mean() <= 0.05, seed


def test_a_start_far_off_is_left() -> None:
    """From nearly twice the share that the target allows, a week leads back; from half of it a month."""
    for first, days in ((2.0, 7), (0.5, 30)):
        ratios, margins = learn_over_days(CURVES["cliff"], 0.002, 0.0, 1, first)
        assert ratios[days:].min() > 0.995
        assert ratios[days:].mean() == pytest.approx(1 + margins[days:].mean(), abs=0.003)


RATIOS = st.lists(st.integers(850, 1052).map(lambda n: n / 1000), min_size=1, max_size=8)


@given(RATIOS, st.integers(0, 50))
def test_a_step_is_bounded_and_a_better_last_day_never_lowers_it(ratios: list[float], more: int) -> None:
    """At one share: the line through the days is then the usual one."""
    days = [ScoredDay(1.0, ratio) for ratio in ratios]
    share = learn_share(days).capacity_share
    assert -LARGEST_FALL - 1e-9 <= log(share) <= LARGEST_RISE + 1e-9
    alike = [ScoredDay(1.0, ratio + more / 1000) for ratio in ratios]  # all better: the spread is the same
    assert learn_share(alike).capacity_share >= share - 1e-12
    scaled = learn_share([ScoredDay(0.5, ratio) for ratio in ratios])
    assert scaled.capacity_share == pytest.approx(share / 2), "the unit of the share is no matter"


def test_quiet_weeks_do_not_wind_the_share_up() -> None:
    """A fleet at its minimum attains all at any share; four days after the load is back, so is the target."""
    days = [ScoredDay(1.0, MOST_RATIO)]
    for _ in range(60):
        days.append(ScoredDay(learn_share(days).capacity_share, MOST_RATIO))
    assert days[-1].capacity_share == LARGEST_SHARE
    for _ in range(5):
        share = learn_share(days).capacity_share
        days.append(ScoredDay(share, CURVES["cliff"](log(share))))
    assert days[-1].attained_ratio >= 1


DAYS = [date(2025, 7, 2), date(2025, 7, 3)]
POLICIES = """
[policies.fixed]
like = "reflex"
capacity_share = 0.5

[policies.learner]
like = "reflex"
capacity_share = 0.5
learns_capacity_share = true
"""


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSettings, list[pa.Table]]:
    """Two nightly runs with a policy that learns, next to one that does not."""
    folder = tmp_path_factory.mktemp("learned")
    config = small_config(folder, policies='["fixed", "learner"]')
    Path(config).write_text(Path(config).read_text() + POLICIES)
    resource = SettingsResource(config=config, lake=str(folder / "lake"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            measured_capacity, "measure_capacities", lambda s, *_: [30.0] * len(s.grid.service_options)
        )
        boards = [run_night(resource, day, Progress()).board for day in DAYS]
    return resource.load(), [board for board in boards if board is not None]


def test_a_replay_and_its_error_draws_have_the_share_of_the_night(
    nights: tuple[RunSettings, list[pa.Table]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the day counts as one of another config. The profiles of the draws have no error here."""
    settings, boards = nights
    resource = SettingsResource(config=str(settings.config.file), lake=str(settings.lake.root))
    row, _, _ = replay_policy(resource, DAYS[1], "learner", Progress())
    assert row.equals(boards[1].filter(pc.equal(boards[1]["policy"], "learner")))
    assert latency_error.open_loop_policies(settings, DAYS[1], ["learner"]) == ["learner"]
    monkeypatch.setattr(latency_error, "profile_errors", lambda _: [])
    drawn = latency_error.replay_latency_draws(settings, DAYS[1], ["learner"], 2, Progress()).to_pylist()
    usd = [draw["value"] for draw in drawn if draw["figure"] == "usd"]
    assert usd == pytest.approx(len(usd) * row["usd"].to_pylist(), rel=1e-9)


def test_each_night_uses_what_the_nights_before_taught(nights: tuple[RunSettings, list[pa.Table]]) -> None:
    settings, boards = nights
    first, second = settings.lake.sql("from learned_shares order by day").to_pylist()
    assert (first["day"], first["policy"], first["capacity_share"]) == (DAYS[0], "learner", 0.5)
    assert second["capacity_share"] == first["next_capacity_share"] != 0.5
    days = [ScoredDay(row["capacity_share"], row["attained_ratio"]) for row in (first, second)]
    assert first["next_capacity_share"] == learn_share(days[:1]).capacity_share
    assert second["next_capacity_share"] == learn_share(days).capacity_share
    for row, board in zip((first, second), boards, strict=True):
        fixed, learner = board.to_pylist(maps_as_pydicts="strict")
        is_alike = fixed["usd"] == learner["usd"]
        assert is_alike is (row is first), "the first night has nothing to learn from"
        targets = {name: tier.attainment_target_share for name, tier in settings.catalogue.tiers.items()}
        ratios = {name: share / targets[name] for name, share in learner["attainment_by_tier"].items()}
        assert row["attained_ratio"] == min(ratios.values()) == ratios[row["worst_tier"]]
    after = with_learned_shares(settings, DAYS[1] + timedelta(days=1))
    assert after.config.policies["learner"].capacity_share == second["next_capacity_share"]
    assert with_learned_shares(settings, DAYS[0]).config.policies["learner"].capacity_share == 0.5


def test_the_path_is_drawn(nights: tuple[RunSettings, list[pa.Table]]) -> None:
    """Its axis has the days that there are, if it is one alone: matplotlib would take four years."""
    settings, _ = nights
    draw = replay_drawings(settings)["learned_shares"]
    for day in DAYS:
        figure = draw(settings, day)
        days = [num2date(tick).date() for tick in figure.axes[1].get_xticks()]
        assert days == [one for one in DAYS if one <= day]
        plt.close(figure)
    [path] = draw_day_figures(settings, DAYS[1], {"learned_shares": draw}).values()
    assert path.stat().st_size > 10_000


def test_a_policy_without_a_share_cannot_learn_one(tmp_path: Path) -> None:
    config = small_config(tmp_path, policies='["static"]')
    learner = '[policies.learner]\nlike = "reactive"\nlearns_capacity_share = true\n'
    Path(config).write_text(Path(config).read_text() + learner)
    with pytest.raises(ConfigError, match=r"reactive has no plan. Drop learns_capacity_share"):
        load_settings(config, str(tmp_path / "lake"))


def test_a_board_of_unseen_days_tunes_no_policy_that_learns() -> None:
    """The shipped config with one is code_weeks; a board of all policies leaves it out."""
    settings = load_settings("code_weeks")
    assert learning_policies(settings.config) == ["compact_learned"]
    assert "compact_learned" in settings.config.replay.policies
    day = settings.config.trace.replay_day
    with pytest.raises(ConfigError, match=r"compact_learned: got .* that learns its share.*Leave it out"):
        compare_on_unseen_days(settings, last_days(day, 1, 1, 1), ["compact_learned"], Progress())
