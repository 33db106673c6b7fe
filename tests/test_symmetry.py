"""Names are data: other names of tiers, llms, regions and GPU types relabel all tables, nothing else."""

import functools
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small import ONE_TRIAL, make_plans, small_config

from fleetcast.assets.lake.settings import Progress, RunSettings, build_settings
from fleetcast.assets.lake.warehouse import Connection, Lake
from fleetcast.assets.replays.replays import replay_day
from fleetcast.assets.replays.scorecards import score_day
from fleetcast.models.world.catalogue import CATALOGUE_DIR, load_catalogue
from fleetcast.models.world.config_loading import load_config

DAY = date(2025, 7, 2)
SHIPPED = (
    *("iw_fast", "iw_normal", "niw"),
    *("east", "central", "west"),
    *("bloom-176b", "llama2-70b", "llama3.1-8b", "llama3.2-3b"),
    *("h100-80gb", "a100-80gb"),
)
NAMES = ("gold", "silver", "bronze", "oslo", "lima", "rome", "ant", "bee", "cat", "dog", "tin", "zinc")
OTHERS = ("q2", "q1", "q3", "s2", "s3", "s1", "w4", "w3", "w2", "w1", "v2", "v1")  # the other way round
VOLATILE = {"cpu_ms", "decision_id", "made_at", "sha256"}  # a time, or made of the names themselves
Rename = Callable[[str], str]


def renaming(old: tuple[str, ...], new: tuple[str, ...]) -> Rename:
    """A function that gives the new names to all old ones in a text."""
    of, whole = dict(zip(old, new, strict=True)), "|".join(map(re.escape, old))
    return functools.cache(
        lambda text: re.sub(rf"(?<![\w-])({whole})(?![\w-])", lambda found: of[found[1]], text)
    )


def night(folder: Path, rename: Rename) -> RunSettings:
    """The lake of a night whose config and catalogue have other names."""
    for path in CATALOGUE_DIR.glob("*.toml"):
        text = path.read_text().replace("h100-80gb = 240", "h100-80gb = 240, a100-80gb = 64")
        (folder / path.name).write_text(rename(text))
    policies = '["corrected", "lt_ua", "clairvoyant"]'
    config = Path(small_config(folder, requests_per_day="300.0", days="2", policies=policies, **ONE_TRIAL))
    text = config.read_text()
    here = '"llama3.1-8b" = { gpu = "h100-80gb"'
    assert here in text
    config.write_text(rename(text.replace(here, here.replace("h100", "a100"))))
    catalogue = load_catalogue(folder)
    settings = build_settings(Lake(folder / "lake"), catalogue, load_config(str(config), catalogue))
    make_plans(settings, DAY)
    replay_day(settings, DAY, settings.config.replay.policies, Progress())
    score_day(settings, DAY)
    return settings


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> list[RunSettings]:
    """Two nights that differ in names alone."""
    names = (NAMES, OTHERS)
    return [night(tmp_path_factory.mktemp("night"), renaming(SHIPPED, new)) for new in names]


def relabelled(value: Any, rename: Rename) -> Any:
    """A value with its names changed, also in a list and in the keys of a map."""
    if isinstance(value, str):
        return rename(value)
    if isinstance(value, dict):
        return {rename(key): inner for key, inner in value.items()}
    return [relabelled(inner, rename) for inner in value] if isinstance(value, list) else value


def rows_of(con: Connection, table: str, rename: Rename) -> pd.DataFrame:
    """The rows of a table or mart, without volatile columns."""
    found = con.sql(f"from {table}").to_arrow_table()
    found = found.drop_columns([name for name in found.column_names if name in VOLATILE])
    rows = [
        {name: relabelled(value, rename) for name, value in row.items()}
        for row in found.to_pylist(maps_as_pydicts="strict")
    ]
    return pd.DataFrame(rows, columns=found.column_names)


def test_names_are_data(nights: list[RunSettings]) -> None:
    filled = 0
    with nights[0].lake.connect() as one, nights[1].lake.connect() as other:
        views = one.sql("select view_name from duckdb_views() where not internal order by all").fetchall()
        for (table,) in views:
            here = rows_of(one, table, renaming(NAMES, OTHERS))
            require_same_rows(table, here, rows_of(other, table, lambda text: text))
            filled += len(here) > 0
    assert filled >= 25


def require_same_rows(table: str, here: pd.DataFrame, there: pd.DataFrame) -> None:
    """Compare rows in one order; floats to the last bits, since sums go in the order of names."""
    exact = [name for name in here if not pd.api.types.is_float_dtype(here[name])]
    texts = [rows[exact].astype(str).sort_values(exact) for rows in (here, there)]
    for name in exact:
        assert texts[0][name].tolist() == texts[1][name].tolist(), (table, name)
    for name in here.columns.difference(exact):
        values = (
            rows.loc[text.index, name].to_numpy(float)
            for rows, text in zip((here, there), texts, strict=True)
        )
        np.testing.assert_allclose(*values, rtol=1e-9, err_msg=f"{table}.{name}")
