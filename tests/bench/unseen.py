"""The boards of unseen days in the lake, over all their traces.

fleetcast board --config mooncake_weeks --unseen-days 5 --trials 7     one trace after the other
python tests/bench unseen
"""

import numpy as np
import pandas as pd
from measure import Figures, Skipped, Target

from fleetcast.assets.lake.settings import load_settings

COMPACT = "compact"
TARGETS = {
    "board_scenarios": Target("", "traces with a board of unseen days", at_least=9),
    "board_rows": Target("", "policies on the shortest of these boards", at_least=14),
    "board_unseen_days": Target("", "scored days of the shortest", at_least=5),
    "board_floor_share": Target("", "minimum fleet over the clairvoyant's cost, the largest", at_most=0.2),
    "fleetcast_over_best": Target("", "compact over the cheapest ranked rival, median", at_most=0.93),
    "fleetcast_over_best_worst": Target("", "the same of the trace where it is largest", at_most=1.0),
    "fleetcast_choice_over_best_worst": Target(
        "", "the policy that the known days choose over the cheapest ranked one, largest; inf: not ranked"
    ),
    "fleetcast_days_on_target": Target("", "scored days on which compact kept all targets", at_least=0.9),
    "fleetcast_over_bound": Target("", "compact over a fleet that knows each minute, median", at_most=1.1),
}


def boards() -> Figures:
    """What the boards of the lake say together."""
    found = load_settings("office").lake.sql("from unseen_board").to_pandas()
    of_compact = found[found["policy"] == COMPACT].set_index("trace")
    rows = found[found["trace"].isin(of_compact.index)]
    rivals = rows[rows["is_ranked"] & ~rows["knows_the_day"] & (rows["policy"] != COMPACT)]
    best = rivals.groupby("trace")["total_usd"].min()
    if best.empty:
        raise Skipped(
            "no board of unseen days with compact and a rival in the lake: fleetcast board --unseen-days 5"
        )
    of_compact, rows = of_compact.loc[best.index], rows[rows["trace"].isin(best.index)]
    chosen = rows[rows["is_chosen"]]
    over: pd.Series = of_compact["total_usd"] / best
    return {
        "board_scenarios": len(best),
        "board_rows": int(rows.groupby("trace").size().min()),
        "board_unseen_days": int(of_compact["days"].min()),
        "board_floor_share": float(of_compact["floor_share"].max()),
        "fleetcast_over_best": float(over.median()),
        "fleetcast_over_best_worst": float(over.max()),
        "fleetcast_choice_over_best_worst": 1
        + float(chosen["over_cheapest_share"].where(chosen["is_ranked"], np.inf).max()),
        "fleetcast_days_on_target": float(of_compact["days_on_target"].sum() / of_compact["days"].sum()),
        "fleetcast_over_bound": 1 + float(of_compact["over_known_minutes_share"].median()),
    }


FUNCTIONS = (boards,)
SMOKE = {"boards": {}}
