"""Missing columns are imputed in their configured shares, for ids of any pattern, each column on its own."""

import re
import tempfile
from math import sqrt
from pathlib import Path

import landed_shares
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetcast.assets.lake.sql_files import SQL, read_sql
from fleetcast.models.world.catalogue import load_catalogue

CATALOGUE = load_catalogue()
REQUESTS, SIGMAS = 20_000, 5


def assert_shares_hold(first: int, step: int) -> None:
    """Assert that every share, and every share of an llm's requests by region, lies within binomial error."""
    ids = np.uint64(first) + np.uint64(step) * np.arange(REQUESTS, dtype=np.uint64)
    with tempfile.TemporaryDirectory() as folder:
        lake = landed_shares.land_ids(Path(folder), ids, CATALOGUE)
        for (key, name), error in landed_shares.errors(lake).items():
            share = landed_shares.WANTED[key][name]
            assert abs(error) < SIGMAS * sqrt(share * (1 - share) / REQUESTS), (key, name, error)
        pairs = lake.sql("select llm, region, count(*) / $n as share from requests group by all", n=REQUESTS)
    for row in pairs.to_pylist():
        share = landed_shares.WANTED["llm"][row["llm"]] * landed_shares.WANTED["region"][row["region"]]
        assert abs(row["share"] - share) < SIGMAS * sqrt(share * (1 - share) / REQUESTS), row


@pytest.mark.parametrize(("first", "step"), landed_shares.PATTERNS.values(), ids=landed_shares.PATTERNS)
def test_shares_hold_for_every_id_pattern(first: int, step: int) -> None:
    assert_shares_hold(first, step)


@settings(max_examples=5)
@given(st.integers(0, (1 << 63) - 1), st.integers(1, (1 << 63) // REQUESTS))
def test_shares_hold_for_any_ids(first: int, step: int) -> None:
    assert_shares_hold(first, step)


OF_REQUESTS = [path for path in sorted((SQL / "sources").glob("*.sql")) if path.stem != "answers"]


@pytest.mark.parametrize("path", OF_REQUESTS, ids=lambda path: path.stem)
def test_every_source_generates_random_ids_or_keeps_given_ones(path: Path) -> None:
    source = read_sql(path)
    drawn = re.findall(
        r"^ *(?:dice|nth\(dice, part\)|if\((?:found\.)?id = '', dice, .*\))\s+as request_id",
        source.text,
        re.MULTILINE,
    )
    assert len(drawn) == (0 if "ids" in source.fields else 1)
