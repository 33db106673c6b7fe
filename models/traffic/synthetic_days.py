"""Seeded synthetic days: office-suite-like traffic, a short real trace tiled, a day multiplied.

Office traffic follows the workload figures of SageServe section 3. The rate of a cell (tier, llm, region) is

    (requests of the tier's week x shape of the week x share of the cell x noise + bulk jobs) x bursts;

arrivals are Poisson within the minute, tokens lognormal by app and tier. Every day and subject has a separate
random stream, so a day does not depend on other generated days or on their order.
"""

from collections.abc import Mapping
from datetime import date, timedelta

import numpy as np
from numpy.typing import NDArray

from fleetcast.models.aliases import Floats, Ints
from fleetcast.models.traffic.random_streams import (
    HOUR_US,
    MINUTE_US,
    burst_factor,
    draw_by_row,
    minute_noise,
    random_stream,
    sort_by_arrival,
)
from fleetcast.models.traffic.trace_columns import DayColumns, TraceNames
from fleetcast.models.world.traffic_config import (
    TRAFFIC_DAY_MINUTES,
    OfficeTraffic,
    TierTraffic,
    TiledTraffic,
)

# A day's level holds from minute 180 to 180 minutes before its end, then blends into the next day's.
NIGHTFALL = (-180, 180, TRAFFIC_DAY_MINUTES - 180, TRAFFIC_DAY_MINUTES + 180)
JOB_SIGMA = 1.0  # of the logarithm of a bulk job's size: a few large ones carry most of the load


# --- office traffic ------------------------------------------------------------------------------------


def office_day(params: OfficeTraffic, day: date, seed: int, names: TraceNames) -> DayColumns:
    """Generate one day of office traffic (SageServe section 3); a tier without traffic has no requests.

    seed : of the trace, 0 or more; the same parameters, seed and day give the same requests
    names : of the catalogue; the codes of the result are positions in them

    Returns: sorted by arrival; `app` is a position in `params.apps`.
    """
    rate = office_rate(params, day, seed, names)
    counts = random_stream(seed, day, "counts").poisson(rate.reshape(-1, TRAFFIC_DAY_MINUTES))
    cell, minute = (np.repeat(axis.ravel(), counts.ravel()) for axis in np.indices(counts.shape))
    arrived_us = minute * MINUTE_US + random_stream(seed, day, "times").integers(0, MINUTE_US, minute.size)
    arrived_us, cell = sort_by_arrival(arrived_us, cell, counts.shape[0])
    tier, llm, region = np.unravel_index(cell, rate.shape[:-1])

    by_tier = np.array([[app.share.get(name, 0.0) for app in params.apps.values()] for name in names.tiers])
    app = draw_by_row(random_stream(seed, day, "apps"), by_tier, tier)

    traffic = [params.tiers.get(name) for name in names.tiers]
    factor = np.array([1.0 if of_tier is None else of_tier.input_factor for of_tier in traffic])
    inputs = np.outer(factor, [app.input_tokens for app in params.apps.values()])[tier, app]
    inputs = inputs * _heavier(params, names)[tier, llm, region]
    outputs = np.array([app.output_tokens for app in params.apps.values()])[app]
    return DayColumns(
        arrived_us=arrived_us,
        region=region.astype(np.int16),
        llm=llm.astype(np.int16),
        tier=tier.astype(np.int16),
        app=app.astype(np.int16),
        input_tokens=_tokens(
            random_stream(seed, day, "input"), inputs, params.input_sigma, params.max_input_tokens
        ),
        output_tokens=_tokens(
            random_stream(seed, day, "output"), outputs, params.output_sigma, params.max_output_tokens
        ),
    )


def office_rate(params: OfficeTraffic, day: date, seed: int, names: TraceNames) -> Floats:
    """Return expected requests per minute with noise, jobs and bursts, shape (tiers, llms, regions, 1440)."""
    shapes = {tier: weekly_shape(params.tiers[tier]) for tier in names.tiers if tier in params.tiers}
    weekday_part = sum(params.tiers[tier].share * shape[:5].sum() for tier, shape in shapes.items())
    week = 5 * params.requests_per_day / weekday_part
    weeks = (day - params.first_week).days // 7
    noise, jobs = random_stream(seed, day, "noise"), random_stream(seed, day, "jobs")
    rates = np.zeros((len(names.tiers), len(names.llms), len(names.regions), TRAFFIC_DAY_MINUTES))
    for tier, shape in shapes.items():
        traffic = params.tiers[tier]
        mix = _by_cell(traffic.mix, 0.0, names)
        smooth = week * traffic.share * (1 + traffic.growth_per_week) ** weeks * shape[day.weekday()]
        steady = (1 - traffic.bulk_share) * mix[..., None] * smooth * _noise(noise, traffic, mix.shape)
        bulk = _bulk_jobs(jobs, traffic, traffic.bulk_share * smooth.sum(), mix)
        rates[names.tiers.index(tier)] = steady + bulk
    return rates * burst_factor(params.bursts, day)


def weekly_shape(traffic: TierTraffic) -> Floats:
    """Return the share of a week's requests in each minute, shape (7, 1440); the sum is 1.

    Levels of neighbouring days blend into each other around midnight.
    """
    minute = np.arange(TRAFFIC_DAY_MINUTES) + 0.5
    hour = np.interp(minute, 60 * np.arange(24) + 30, traffic.by_hour, period=TRAFFIC_DAY_MINUTES)
    level = np.array(traffic.by_weekday)
    levels = [
        np.interp(minute, NIGHTFALL, (level[d - 1], level[d], level[d], level[(d + 1) % 7])) for d in range(7)
    ]
    shape = np.array(levels) * hour
    return shape / shape.sum()


def _heavier(params: OfficeTraffic, names: TraceNames) -> Floats:
    """Return the factor on the input tokens of each cell, shape (tiers, llms, regions); 1 by default."""
    heavier = [params.tiers[tier].heavier if tier in params.tiers else {} for tier in names.tiers]
    return np.array([_by_cell(table, 1.0, names) for table in heavier])


def _by_cell(table: Mapping[str, Mapping[str, float]], default: float, names: TraceNames) -> Floats:
    """Return a table llm -> region -> value as an array, shape (llms, regions), `default` where missing."""
    cells = np.full((len(names.llms), len(names.regions)), default)
    for llm, regions in table.items():
        for region, value in regions.items():
            cells[names.llms.index(llm), names.regions.index(region)] = value
    return cells


def _noise(rng: np.random.Generator, traffic: TierTraffic, shape: tuple[int, ...]) -> Floats:
    """Sample the noise of a tier, shape (*shape, 1440)."""
    shares = (traffic.daily_noise_share, traffic.minute_noise_share, traffic.minute_noise_minutes)
    return minute_noise(rng, *shares, shape)


def _bulk_jobs(rng: np.random.Generator, traffic: TierTraffic, requests: float, mix: Floats) -> Floats:
    """Sample the rate of bulk jobs, requests per minute, shape (llms, regions, 1440).

    Jobs start at random times, have lognormal sizes and spread evenly over their minutes. `mix`, the share of
    each cell, has the shape (llms, regions).
    """
    rate = np.zeros((mix.size, TRAFFIC_DAY_MINUTES))
    if requests > 0:
        jobs = rng.poisson(traffic.jobs_per_day)
        sizes = rng.lognormal(-(JOB_SIGMA**2) / 2, JOB_SIGMA, jobs) * requests / traffic.jobs_per_day
        cells = rng.choice(mix.size, jobs, p=mix.ravel() / mix.sum())
        starts = rng.integers(0, TRAFFIC_DAY_MINUTES - traffic.job_minutes + 1, jobs)
        for cell, start, size in zip(cells, starts, sizes, strict=True):
            rate[cell, start : start + traffic.job_minutes] += size / traffic.job_minutes
    return rate.reshape(*mix.shape, TRAFFIC_DAY_MINUTES)


# --- a real trace, tiled -------------------------------------------------------------------------------


def tile_day(template: DayColumns, params: TiledTraffic, day: date, seed: int) -> DayColumns:
    """Repeat a short trace over a day with the hours of given weeks.

    1. The template is folded into one hour: times modulo an hour; a shorter template is stretched to an hour.
       It counts as `rows` requests an hour (fewer where several hours were folded into one).
    2. Hour h of the weeks gets round(requests_share x rows x by_hour_of_week[h] / their mean) requests. They
       are sampled from the template with replacement: tokens, region, llm, tier and app stay together.
    3. Each request keeps its place within the hour, plus a uniform jitter of under a second.

    template : `arrived_us` may count from any instant

    Raises
    ------
    ValueError
        The template has no requests.
    """
    rows = template.arrived_us.size
    if not rows:
        raise ValueError("The template of the trace has no requests. Land its file: fleetcast ingest.")
    rng = random_stream(seed, day, "tile")
    elapsed = template.arrived_us - template.arrived_us.min()
    span = max(int(elapsed.max()), 1)
    folded = min(span, HOUR_US)
    days = np.reshape(params.by_hour_of_week, (-1, 24))
    first = params.first_week or day - timedelta(days=day.weekday())
    weights = days[(day - first).days % len(days)] / days.mean()
    counts = np.rint(params.requests_share * rows * folded / span * weights).astype(np.int64)
    hour = np.repeat(np.arange(24), counts)
    sampled = rng.integers(0, rows, hour.size)
    place = (elapsed * (HOUR_US / folded)).astype(np.int64)[sampled]
    place = (place + rng.integers(0, 1_000_000, hour.size)) % HOUR_US
    arrived_us, sampled = sort_by_arrival(hour * HOUR_US + place, sampled, rows)
    return DayColumns._make((arrived_us, *(column[sampled] for column in template[1:])))


# --- a day with more or fewer requests ------------------------------------------------------------------


def multiply_day(arrived_us: Ints, factor: float, day: date, seed: int) -> tuple[Ints, Ints]:
    """Multiply the requests of a day by `factor`.

    Every request occurs floor(factor) times, and once more with the probability of the fraction. The first
    occurrence keeps its instant. The others arrive within half a minute of it, so that the load of a minute
    grows and copies do not arrive at the same instant.

    arrived_us : microseconds since midnight, shape (rows,)

    Returns
    -------
    arrived_us : of the new requests, ascending, shape (requests,)
    row : the request that each one repeats, shape (requests,)
    """
    rng = random_stream(seed, day, "copies")
    times = np.floor(factor + rng.random(arrived_us.size)).astype(np.int64)
    row = np.repeat(np.arange(arrived_us.size), times)
    is_copy = np.diff(row, prepend=-1) == 0
    moved_us = np.where(is_copy, rng.integers(-MINUTE_US // 2, MINUTE_US // 2, row.size), 0)
    moved_us = np.clip(arrived_us[row] + moved_us, 0, TRAFFIC_DAY_MINUTES * MINUTE_US - 1)
    return sort_by_arrival(moved_us, row, arrived_us.size)


# --- sampling ------------------------------------------------------------------------------------------


def _tokens(rng: np.random.Generator, median: Floats, sigma: float, most: int) -> NDArray[np.int32]:
    """Sample lognormal tokens, 1 to `most`, of given medians; both (requests,)."""
    tokens = median * np.exp(sigma * rng.standard_normal(median.size, dtype=np.float32))
    return np.clip(tokens, 1, most).astype(np.int32)
