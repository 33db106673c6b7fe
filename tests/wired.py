"""The run of wired.toml: its catalogue, a day of requests that fills its fleet, and forecasts of that day."""

import dataclasses
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from fleetcast.assets.demand.demand import build_demand, read_demand_matrix
from fleetcast.assets.lake.schemas import SCHEMAS
from fleetcast.assets.lake.settings import RunSettings
from fleetcast.assets.lake.warehouse import Lake
from fleetcast.assets.traces.request_days import canonical_requests, write_tiers
from fleetcast.models.traffic.trace_columns import DayColumns
from fleetcast.models.world.catalogue import Catalogue, load_catalogue
from fleetcast.models.world.catalogue_entries import Region
from fleetcast.models.world.config_loading import load_config
from fleetcast.models.world.policies import REPLAY_POLICIES

DAY = date(2025, 7, 3)
LLMS = ("bloom-176b", "llama2-70b")
REGIONS = ("north", "south", "far")
TIERS = ("iw_fast", "iw_normal", "niw")
OPEN = [name for name, rule in REPLAY_POLICIES.items() if not rule.is_closed and rule.answers is None]
SUSTAINED = (130.0, 450.0)  # input tokens/s of an instance of each, as if measured
REQUESTS = 60_000  # of a day
PAPER_FACTOR = {"north": 0.9, "south": 0.25, "far": 2.2}  # of what came, as last_value foresees it
QUANTILE_FACTORS = {50: 1.0, 90: 1.3, 95: 1.6}  # of the hour's peak, as seasonal_naive foresees it
SEASONAL_FACTOR = 1.1


def wired_catalogue() -> Catalogue:
    """Two llms in three unequal regions."""
    world, source = load_catalogue().of_era("2023", "here"), "a test"
    gpus = {
        "h100-80gb": dataclasses.replace(world.gpus["h100-80gb"], memory_gib=58.2, usd_per_hour=9.5),
        "a100-80gb": dataclasses.replace(
            world.gpus["a100-80gb"], memory_gib=75.0, usd_per_hour=3.25, boot_factor=1.25
        ),
    }
    tiers = {"iw_fast": (1.3, 47.0, 0.91), "iw_normal": (31.0, 507.0, 0.93), "niw": (None, 43_000.0, 0.89)}
    north = Region(
        ("north", "far", "south"), {"south": 0.11, "far": 0.07},
        {"h100-80gb": 53, "a100-80gb": 101}, (LLMS[0],), source,
    )  # fmt: skip
    south = Region(
        ("south", "north"), {"north": 0.05, "far": 0.13}, {"h100-80gb": 47, "a100-80gb": 97}, LLMS, source
    )
    far = Region(
        ("far", "south", "north"), {"south": 0.17, "north": 0.19},
        {"h100-80gb": 43, "a100-80gb": 89}, (LLMS[1],), source,
    )  # fmt: skip
    return dataclasses.replace(
        world,
        gpus=gpus,
        llms={name: world.llms[name] for name in LLMS},
        regions=dict(zip(REGIONS, (north, south, far), strict=True)),
        tiers={
            name: dataclasses.replace(
                world.tiers[name], ttft_slo_s=slo_s, deadline_s=deadline_s, attainment_target_share=share
            )
            for name, (slo_s, deadline_s, share) in tiers.items()
        },
    )


def wired_settings(lake: Path | str) -> RunSettings:
    """The settings of wired.toml over a lake that may be empty."""
    catalogue = wired_catalogue()
    return RunSettings(
        Lake(lake), catalogue, load_config(str(Path(__file__).with_name("wired.toml")), catalogue)
    )


def changed(settings: RunSettings, table: str, **values: object) -> RunSettings:
    """The settings with other values in a table of the config."""
    part = dataclasses.replace(getattr(settings.config, table), **values)
    return settings.with_config(**{table: part})


def fill(settings: RunSettings) -> RunSettings:
    """Bring three days of requests, their demand and two forecasts of the last day into the lake."""
    for back in (2, 1, 0):
        day = DAY - timedelta(days=back)
        table = with_cached(
            canonical_requests(requests(day), day, "test", settings.catalogue, ["rag", "chat"])
        )
        settings.lake.write("requests", table, trace=settings.trace, day=day)
        build_demand(settings.lake, settings.trace, day)
    write_tiers(settings.lake, settings.trace, settings.catalogue)
    write_forecasts(settings)
    return settings


def with_cached(table: pa.Table) -> pa.Table:
    """The same requests, of whose prompts a third was cached where they were seen; of some it is not
    known.
    """
    third = table["input_tokens"].to_numpy() // 3
    known = pa.array(third, table.schema.field("cached_tokens").type, mask=np.arange(third.size) % 5 == 0)
    return table.set_column(table.schema.get_field_index("cached_tokens"), "cached_tokens", known)


def requests(day: date) -> DayColumns:
    """Two busy stretches in the morning and little else; every region and llm has its own share."""
    rng = np.random.default_rng(day.toordinal())
    hour = rng.choice([2, 3, 4, 5, 6, 7, 14, 23], REQUESTS, p=[0.05, 0.2, 0.3, 0.2, 0.13, 0.05, 0.05, 0.02])
    arrived_s = np.sort(3600 * hour + 3600 * rng.random(REQUESTS) ** 1.3)
    region = rng.choice(3, REQUESTS, p=[0.5, 0.3, 0.2])
    llm = np.where(rng.random(REQUESTS) < 0.35 + 0.1 * region, 0, 1)
    tokens = ((5.6 + 0.9 * llm, 5.7), (0.5, 0.4))
    inputs, outputs = (
        np.clip(rng.lognormal(mean, sigma, REQUESTS), 1, 2500).astype(np.int32)
        for mean, sigma in zip(*tokens, strict=True)
    )
    codes = (region, llm, rng.choice(3, REQUESTS, p=[0.35, 0.25, 0.4]), rng.integers(0, 2, REQUESTS))
    return DayColumns(
        (1e6 * arrived_s).astype(np.int64), *(code.astype(np.int16) for code in codes), inputs, outputs
    )


def came(settings: RunSettings) -> np.ndarray:
    """Interactive input tokens/s of the day: (llms, regions, buckets)."""
    minutes = settings.config.forecast.bucket_minutes
    found = read_demand_matrix(settings.lake, settings.trace, DAY, DAY, minutes, settings.catalogue)
    return found.tier_series("interactive")


def write_forecasts(settings: RunSettings) -> None:
    """Both methods' forecasts of the interactive input tokens; the planned one's of the day ahead."""
    minutes = settings.config.forecast.bucket_minutes
    actual = came(settings)
    hours = []
    for method in settings.config.forecast.methods:
        for (i, j, bucket), per_s in np.ndenumerate(actual):
            start = datetime.fromisoformat(f"{DAY}T00:00:00+00:00") + timedelta(minutes=minutes * bucket)
            is_paper = method == settings.config.forecast.paper_method
            factor = PAPER_FACTOR[REGIONS[j]] if is_paper else SEASONAL_FACTOR
            first = bucket - bucket % (60 // minutes)
            peak = actual[i, j, first : first + 60 // minutes].max()
            row = {
                **{"measure": "input_tokens", "tier": "interactive", "method": method, "llm": LLMS[i]},
                **{"region": REGIONS[j], "cutoff": start.replace(minute=0), "bucket_start": start},
                **{"bucket_minutes": minutes, "forecast_per_s": factor * per_s, "actual_per_s": per_s},
                **{f"peak_p{q}_per_s": times * peak for q, times in QUANTILE_FACTORS.items()},
            }
            row = {**dict.fromkeys(SCHEMAS["forecasts"].names), **row}
            others = ({"tier": "iw_fast"}, {"measure": "output_tokens"})  # which no plan may read
            wrong = {name: 7 * value for name, value in row.items() if name.endswith("_per_s") and value}
            hours += [row, *(row | wrong | {"actual_per_s": per_s} | other for other in others)]
    where = {"trace": settings.trace, "day": DAY}
    settings.lake.write("forecasts", pa.Table.from_pylist(hours, SCHEMAS["forecasts"]), **where)
    midnight = datetime.fromisoformat(f"{DAY}T00:00:00+00:00")
    ahead = [
        row
        | {"cutoff": midnight, "forecast_per_s": 1.4 * row["actual_per_s"]}
        | {f"peak_p{q}_per_s": 2 * row[f"peak_p{q}_per_s"] for q in QUANTILE_FACTORS}
        for row in hours
        if row["method"] == settings.config.forecast.method
        and (row["tier"], row["measure"]) == ("interactive", "input_tokens")
    ]
    table = pa.Table.from_pylist(ahead, SCHEMAS["day_ahead_forecasts"])
    settings.lake.write("day_ahead_forecasts", table, **where)
