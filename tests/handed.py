"""A day plan written by hand, not solved: counts by hour, the same for every llm and region."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings, midnight


def plan_rows(settings: RunSettings, day: date, policy: str, counts: Sequence[int]) -> list[dict[str, Any]]:
    """A policy's plan of `day`: `counts[h]` instances in hour h, and one more of the second llm."""
    rows = []
    for n, kind in enumerate(settings.grid.service_options):
        gpu, gpus = kind.option.gpu, kind.option.gpus
        usd = settings.catalogue.gpus[gpu].usd_per_hour * gpus
        for region in settings.catalogue.regions:
            for hour, count in enumerate(counts):
                held, before = (one + (n == 1) for one in (count, counts[max(hour - 1, 0)]))
                row = dict.fromkeys(SCHEMAS["plans"].names)
                row |= {"policy": policy, "programme": "corrected", "solver_status": "Optimal"}
                row |= {"llm": kind.llm, "role": kind.role, "served_region": region, "gpu": gpu}
                row |= {"gpus_per_instance": gpus, "hour_start": midnight(day) + timedelta(hours=hour)}
                row |= {"demand_tokens_per_s": 100.0 * count, "buffer_tokens_per_s": 0.0}
                row |= {"capacity_tokens_per_s": 100.0, "short_tokens_per_s": 0.0, "gap_share": 0.0}
                row |= {"short_llm_tokens_per_s": 0.0, "usd": usd * held, "delta": held - before}
                row |= {"instances_before": before, "instances": held, "reclaimed": 0, "started": 0}
                row |= {"donated": 0, "why": "peak" if held != before else None}
                rows.append(row)
    return rows


def write_plan(settings: RunSettings, day: date, counts: Sequence[int]) -> None:
    """Write the day-ahead plan of `day`, as if it was made before the day begins."""
    made = pa.Table.from_pylist(plan_rows(settings, day, "day_ahead", counts), schema=SCHEMAS["plans"])
    settings.lake.write("day_ahead_plans", made, trace=settings.trace, day=day)
