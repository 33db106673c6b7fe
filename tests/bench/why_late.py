"""What `why_late` costs: the three worst late requests of each policy of a large day, with their causes."""

import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from measure import Figures, Target, cpu_seconds

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.warehouse import Lake

POLICIES, REQUESTS, INSTANCES = 12, 500_000, 200
DAY = datetime(2025, 7, 15, tzinfo=UTC)
TARGETS = {
    "why_late_seconds": Target("s", "why_late.sql over 12 policies, 6 million outcomes; CPU", at_most=5.0)
}


def ask_why_late() -> Figures:
    """Write outcomes of made requests, of which one in a hundred is late, and run the query."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder) / "lake")
        for n in range(POLICIES):
            where = {"trace": "t", "day": DAY.date(), "policy": f"p{n}"}
            lake.write("outcomes", made_outcomes(n), **where)
            lake.write("fleet_hours", SCHEMAS["fleet_hours"].empty_table(), **where)
        found: list[int] = []
        spent_s = cpu_seconds(
            lambda: found.append(lake.sql("queries/why_late.sql", trace="t", day=DAY.date()).num_rows), 3
        )
        assert set(found) == {3 * POLICIES}
        return {"why_late_seconds": spent_s}


def made_outcomes(seed: int) -> pa.Table:
    """Requests of a day in order of arrival on random instances; lognormal times to the first token."""
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.uniform(0, 86_400, REQUESTS))
    ttft_s = rng.lognormal(-1.0, 0.6, REQUESTS)
    numbers = {
        "request_id": np.arange(REQUESTS), "instance": rng.integers(0, INSTANCES, REQUESTS), "ttft_s": ttft_s,
        "e2e_s": ttft_s + 5, "tpot_s": np.full(REQUESTS, 0.02),
        "waited_s": ttft_s / 2, "prefill_s": ttft_s / 2,
        "input_tokens": rng.integers(10, 4000, REQUESTS), "output_tokens": rng.integers(1, 800, REQUESTS),
    }  # fmt: skip
    zeros = dict.fromkeys(("held_s", "earlier_s", "network_s"), np.zeros(REQUESTS))
    constants = {"ttft_slo_s": 1.5, "deadline_s": 600.0, "is_held": False, "legs": 1, "preemptions": 0}
    texts = {"llm": "m", "served_llm": "m", "region": "east", "served_region": "east", "tier": "iw_fast"}
    columns = numbers | zeros | {"arrived_at": (1e6 * (DAY.timestamp() + seconds)).astype("datetime64[us]")}
    columns |= {
        name: [value] * REQUESTS for name, value in (constants | texts | {"status": "finished"}).items()
    }
    schema = SCHEMAS["outcomes"]
    return pa.table(
        {
            field.name: pa.array(columns[field.name]).cast(field.type)
            if field.name in columns
            else pa.nulls(REQUESTS, field.type)
            for field in schema
        }
    )


FUNCTIONS = [ask_why_late]
SMOKE = {"ask_why_late": {"POLICIES": 2, "REQUESTS": 2000}}
