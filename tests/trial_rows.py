"""Rows of the table trials, as an experiment writes them, from one row a trial."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from fleetcast.assets.lake.schemas import SCHEMAS

OF_ALL = {"tier": "all", "llm": "all"}
NO_KEYS = {"purpose": "judged", "resample": 0, "draw": 0, "knobs": {}, "labels": {}}


def trial_rows(trials: Iterable[tuple[Mapping[str, Any], Mapping[Any, Any]]]) -> pa.Table:
    """Of each trial its keys and its figures: by metric, or by metric and tier; null ones are left out."""
    rows = []
    for keys, figures in trials:
        own = NO_KEYS | {"policy": "lt_i"} | dict(keys)
        own |= {name: list(own[name].items()) for name in ("knobs", "labels")}
        for name, value in figures.items():
            metric, tier = (name, "all") if isinstance(name, str) else name
            if value is not None:
                rows.append(own | OF_ALL | {"metric": metric, "tier": tier, "value": float(value)})
    return pa.Table.from_pylist(rows, SCHEMAS["trials"])


def decided(method: str, share: float, met: float, target: float, **figures: float) -> Any:
    """A trial of a forecast method, compared by iw_fast."""
    keys = {"variant": method, "knobs": {"capacity_share": share}, "labels": {"tier": "iw_fast"}}
    return keys, {**figures, ("attainment_share", "iw_fast"): met, "matched_share": target}
