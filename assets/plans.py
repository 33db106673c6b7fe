"""Plans of a day: instances per llm and region for each hour, by what each plan knows of the demand.

forecast   the forecast of the hour, made when it began, and SageServe's buffer for niw (6.3)
truth      what really came: no policy can know it, every policy is measured against it
peak       the largest hour of the history, held all day
"""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from assets.demand import demand_matrix
from assets.forecasts import predicted_peaks
from assets.settings import HOURS, Progress, Settings, Step, midnight
from models.capacity import capacity_tokens_per_s
from models.plan.ilp import solve
from models.plan.policies import hourly_plans, peak_plan
from models.plan.problem import Plan, Problem, violations
from models.policies import POLICIES
from models.replay.compiled import is_cached

Floats = NDArray[np.float64]
Tokens = NDArray[np.int32]

MIX_SAMPLE = 20_000  # requests that stand for an llm's token mix

SCHEMA = pa.schema(
    [
        ("policy", pa.string()),
        ("hour_start", pa.timestamp("us", "UTC")),
        ("llm", pa.string()),
        ("region", pa.string()),
        ("gpu", pa.string()),
        ("demand_tokens_per_s", pa.float64()),
        ("buffer_tokens_per_s", pa.float64()),
        ("capacity_tokens_per_s", pa.float64()),
        ("instances_before", pa.int64()),
        ("instances", pa.int64()),
        ("delta", pa.int64()),
        ("short_tokens_per_s", pa.float64()),
        ("short_llm_tokens_per_s", pa.float64()),
        ("status", pa.string()),
        ("gap_share", pa.float64()),
        ("usd", pa.float64()),
    ]
)


class Load(NamedTuple):
    """What a plan has to carry, tokens/s of input, shape (hours, llms, regions)."""

    demand: Floats  # interactive: the largest bucket of the hour
    buffer: Floats  # the share of niw that is kept free


def plan_day(settings: Settings, day: date, progress: Progress) -> pa.Table:
    """Plan the hours of `day` for every policy that follows a plan, all from the same fleet."""
    mixes = token_mixes(settings, day)
    first = "" if is_cached() else "compile the replay, "  # half a minute, once
    with progress.bar(f"{first}measure capacity", len(mixes)) as done:
        theta = []
        for llm, mix in mixes.items():
            deployment = settings.config.fleet.deployments[llm]
            theta.append(capacity_tokens_per_s(llm, deployment, settings.catalogue, settings.config, *mix))
            done(len(theta))
    template = problem_template(settings, theta)
    loads = day_loads(settings, day)
    with progress.bar(f"plan {day}", len(loads) * HOURS) as done:
        plans = chained_plans(settings, template, loads, done)
    tables = [
        _rows(settings, day, policy, template, loads[rule.plan], plans[rule.plan])
        for policy, rule in POLICIES.items()
        if rule.plan is not None
    ]
    table = pa.concat_tables(tables)
    settings.lake.write("plans", table, trace=settings.trace, day=day)
    return table


def chained_plans(
    settings: Settings, template: Problem, loads: dict[str, Load], done: Step
) -> dict[str, list[Plan]]:
    """Plan every load hour by hour; all of them start from hour 0 of the forecast plan.

    So the policies differ in what they do, not in what they are given; the replay starts there as well.
    """
    options = settings.config.plan
    solved = 0

    def one_hour(problem: Problem) -> Plan:
        nonlocal solved
        plan = solve(problem, options.solver, options.gap_share, options.time_limit_s)
        if broken := violations(problem, plan):
            raise RuntimeError(f"The solver {plan.solver} broke its own programme: {broken[0]}")
        solved += 1
        done(solved)
        return plan

    hours = {
        name: [_hour(template, load, hour) for hour in range(len(load.demand))]
        for name, load in loads.items()
    }
    forecast = hourly_plans(hours["forecast"], template.instances_now, one_hour)
    start = forecast[0].instances
    peak = peak_plan([problem._replace(instances_now=start) for problem in hours["peak"]], one_hour)
    unchanged = peak._replace(delta=np.zeros_like(peak.delta))
    return {
        "forecast": forecast,
        "truth": hourly_plans(hours["truth"], start, one_hour),
        "peak": [peak] + [unchanged] * (HOURS - 1),
    }


def problem_template(settings: Settings, sustained_tokens_per_s: Sequence[float]) -> Problem:
    """All of the hourly programme but the load: capacities, prices, limits and the fleet at the start."""
    catalogue, config = settings.catalogue, settings.config
    llms, regions, gpus = list(catalogue.llms), list(catalogue.regions), list(catalogue.gpus)
    theta, usd = np.full((len(llms), len(gpus)), np.nan), np.zeros((len(llms), len(gpus)))
    size = np.ones((len(llms), len(gpus)), np.int64)
    now = np.zeros((len(llms), len(regions), len(gpus)), np.int64)
    for i, (llm, sustained) in enumerate(zip(llms, sustained_tokens_per_s, strict=True)):
        deployment = config.fleet.deployments[llm]
        k = gpus.index(deployment.gpu)
        theta[i, k] = sustained * config.plan.capacity_share
        size[i, k] = deployment.tensor_parallel
        usd[i, k] = catalogue.gpus[deployment.gpu].usd_per_hour * deployment.tensor_parallel
        now[i, :, k] = config.fleet.instances_at_start
    limits = np.ones((len(llms), len(regions)), np.int64)
    return Problem(
        llms=tuple(llms),
        regions=tuple(regions),
        gpus=tuple(gpus),
        instances_now=now,
        tokens_per_s=theta,
        usd_per_hour=usd,
        start_usd=usd * config.replay.boot_spot_s / 3600,
        demand_tokens_per_s=np.zeros((len(llms), len(regions), 1)),
        buffer_tokens_per_s=np.zeros((len(llms), len(regions))),
        gpus_per_instance=size,
        cap_gpus=np.array(
            [[site.cap_gpus.get(gpu, 0) for gpu in gpus] for site in catalogue.regions.values()]
        ),
        min_instances=limits * config.fleet.min_instances,
        max_instances=limits * config.fleet.max_instances,
        epsilon=config.plan.epsilon,
    )


def day_loads(settings: Settings, day: date) -> dict[str, Load]:
    """The load of each hour as each plan sees it; `peak` has the hours of the whole history."""
    config = settings.config.forecast
    first = settings.history(day)[0]
    _, interactive, niw = demand_matrix(
        settings.lake, settings.trace, first, day, config.bucket_minutes, settings.catalogue
    )
    for rates in (interactive, niw):  # in a silence of the day nothing is replayed
        np.nan_to_num(rates[..., -HOURS * 60 // config.bucket_minutes :], copy=False)
    peaks = _by_hour(interactive, config.bucket_minutes).max(axis=-1)
    buffer = _by_hour(niw, config.bucket_minutes).mean(axis=-1) * config.niw_buffer_share
    past = ~np.isnan(peaks[:-HOURS]).any(axis=(1, 2))
    last_hour = np.nan_to_num(buffer[-HOURS - 1 : -1])
    return {
        "forecast": Load(predicted_peaks(settings, day), last_hour),
        "truth": Load(peaks[-HOURS:], buffer[-HOURS:]),
        "peak": Load(peaks[:-HOURS][past], buffer[:-HOURS][past]),
    }


def _by_hour(per_bucket: Floats, bucket_minutes: int) -> Floats:
    """(llms, regions, buckets) -> (hours, llms, regions, buckets of the hour)."""
    llms, regions, _ = per_bucket.shape
    return np.moveaxis(per_bucket.reshape(llms, regions, -1, 60 // bucket_minutes), 2, 0)


def _hour(template: Problem, load: Load, hour: int) -> Problem:
    return template._replace(
        demand_tokens_per_s=load.demand[hour][:, :, None], buffer_tokens_per_s=load.buffer[hour]
    )


def token_mixes(settings: Settings, day: date) -> dict[str, tuple[Tokens, Tokens]]:
    """Input and output tokens of a sample of the day before's interactive requests, per llm."""
    sample = settings.lake.sql(
        "select llm, input_tokens, output_tokens from requests "
        "where trace = $trace and day = $day and tier <> 'niw' "
        "qualify row_number() over (partition by llm order by hash(request_id)) <= $size",
        trace=settings.trace,
        day=day - timedelta(days=1),
        size=MIX_SAMPLE,
    ).to_pandas()
    mixes = {}
    for llm in settings.catalogue.llms:
        own = sample[sample["llm"] == llm]
        mix = own if len(own) else sample  # nobody asked for it yesterday: the common mix stands in
        mixes[llm] = (mix["input_tokens"].to_numpy(np.int32), mix["output_tokens"].to_numpy(np.int32))
    return mixes


def _rows(
    settings: Settings, day: date, policy: str, template: Problem, load: Load, plans: list[Plan]
) -> pa.Table:
    """Long rows of one policy's plan: every hour, llm and region, on the GPU type of the llm's deployment."""
    is_peak = POLICIES[policy].plan == "peak"
    if is_peak:  # one figure for all hours: the largest of the history, region by region
        load = Load(*(part.max(axis=0) for part in load))
    rows = []
    for hour, plan in enumerate(plans):
        demand, buffer = load if is_peak else (load.demand[hour], load.buffer[hour])
        for i, k in zip(*np.nonzero(template.runs), strict=True):
            for j, region in enumerate(template.regions):
                held, delta = int(plan.instances[i, j, k]), int(plan.delta[i, j, k])
                rows.append(
                    {
                        "policy": policy,
                        "hour_start": midnight(day) + timedelta(hours=hour),
                        "llm": template.llms[i],
                        "region": region,
                        "gpu": template.gpus[k],
                        "demand_tokens_per_s": demand[i, j],
                        "buffer_tokens_per_s": buffer[i, j],
                        "capacity_tokens_per_s": template.tokens_per_s[i, k],
                        "instances_before": held - delta,
                        "instances": held,
                        "delta": delta,
                        "short_tokens_per_s": plan.short_tokens_per_s[i, j],
                        "short_llm_tokens_per_s": plan.short_llm_tokens_per_s[i],
                        "status": plan.status,
                        "gap_share": plan.gap_share,
                        "usd": held * template.usd_per_hour[i, k],
                    }
                )
    return pa.Table.from_pylist(rows, schema=SCHEMA)
