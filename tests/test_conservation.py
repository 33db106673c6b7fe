"""Money, tokens and energy are the same from the kernel's tables to every mart and board."""

import numpy as np
import pandas as pd
from wired import DAY

from fleetcast.assets.lake.settings import RunSettings

KEYS = ["policy", "llm"]


def table(settings: RunSettings, name: str) -> pd.DataFrame:
    return settings.lake.read(name, trace=settings.trace, day=DAY).to_pandas()


def mart(settings: RunSettings, name: str) -> pd.DataFrame:
    query = f"from {name} where trace = $trace and day = $day::date"
    return settings.lake.sql(query, trace=settings.trace, day=DAY).to_pandas()


def summed(frame: pd.DataFrame, column: str, keys: list[str]) -> pd.Series:
    return frame.groupby(keys)[column].sum(min_count=1).sort_index()


def assert_same(one: pd.Series, other: pd.Series) -> None:
    pd.testing.assert_series_equal(one, other, check_names=False, check_dtype=False, rtol=1e-9)


def test_the_dollars_of_the_fleet_are_those_of_every_mart(wired_scored: RunSettings) -> None:
    hours = table(wired_scored, "fleet_hours")
    paid_s = hours[["serving_s", "booting_s", "draining_s"]].sum(axis=1)
    hours["usd"] = paid_s / 3600 * hours["gpus_per_instance"] * hours["usd_per_gpu_hour"]
    true = summed(hours, "usd", ["policy"])
    assert (true > 0).all()
    places = ["policy", "llm", "served_region", "hour_start"]
    assert_same(summed(mart(wired_scored, "fleet_by_hour"), "usd", places), summed(hours, "usd", places))
    assert_same(summed(mart(wired_scored, "unit_cost"), "usd", places), summed(hours, "usd", places))
    assert_same(summed(mart(wired_scored, "energy"), "usd", KEYS), summed(hours, "usd", KEYS))
    for board in ("scoreboard", "tokens_per_usd"):
        assert_same(summed(mart(wired_scored, board), "usd", ["policy"]), true)
    prices = dict(zip(hours["gpu"], hours["usd_per_gpu_hour"], strict=True))
    gpus = wired_scored.catalogue.gpus
    assert prices == {gpu: gpus[gpu].usd_per_hour for gpu in prices}


def test_the_tokens_of_the_outcomes_are_those_of_the_requests_and_of_every_mart(
    wired_scored: RunSettings,
) -> None:
    requests, outcomes = (table(wired_scored, name) for name in ("requests", "outcomes"))
    sides = ["input_tokens", "output_tokens"]
    came = requests[sides].sum()
    for _, own in outcomes.groupby("policy"):
        assert len(own) == len(requests)
        assert (own[sides].sum() == came).all()
    outcomes["tokens"] = outcomes[sides].sum(axis=1)
    served = outcomes[outcomes["e2e_s"].notna()].assign(llm=lambda rows: rows["served_llm"])
    for name in ("energy", "unit_cost"):
        found = summed(mart(wired_scored, name), "tokens", KEYS)
        assert_same(found[found > 0], summed(served, "tokens", KEYS))
    finished = summed(outcomes[outcomes["status"] == "finished"], "tokens", ["policy"])
    assert_same(summed(mart(wired_scored, "tokens_per_usd"), "served_tokens", ["policy"]), finished)
    assert (finished > 0).all()


def test_the_joules_are_the_sum_over_the_pools(wired_scored: RunSettings) -> None:
    hours = table(wired_scored, "fleet_hours")
    hours["joules"] = hours["serving_s"] * hours["gpus_per_instance"] * hours["board_w"]
    is_unknown = hours["board_w"].isna() & (hours["serving_s"] > 0)
    known = hours.assign(is_unknown=is_unknown).groupby(KEYS)["is_unknown"].any()
    found = mart(wired_scored, "energy").set_index(KEYS).sort_index()
    true = summed(hours, "joules", KEYS).mask(known)
    assert_same(found["joules"].astype(float), true)
    assert np.isfinite(true).any() or known.all()
