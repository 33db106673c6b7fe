-- forecast_losses: errors of each method on the days of the backtest, by endpoint and horizon.
-- grain: trace, tier, method, llm, region, horizon_minutes
-- reads: backtests
-- units: *_share 0 to 1; error, came, pinball_* input tokens/s summed over buckets; cpu_s seconds per forecast
-- is_living = whether the endpoint had demand in the backtest, or a method forecast some
-- cpu_s = CPU seconds of one forecast of one series, with its share of the fits
with horizons as (
    select unnest([10, 60, 120]) as horizon_minutes
),

judged as (
    select *
    from backtests
    inner join horizons
        on bucket_start + to_minutes(bucket_minutes) <= cutoff + to_minutes(horizon_minutes)
    where actual_per_s is not null
),

hours as (
    select
        trace, tier, method, llm, region, cutoff,
        max(actual_per_s) > max(forecast_per_s) as is_under,
        max(actual_per_s) > any_value(peak_p90_per_s) as is_above_peak_p90
    from judged
    where horizon_minutes = 60
    group by trace, tier, method, llm, region, cutoff
),

peaks as (
    select
        trace, tier, method, llm, region,
        count_if(is_under) / count(*) as under_share,
        count_if(is_above_peak_p90) / count(*) as above_peak_p90_share,
        p90_note(1 - above_peak_p90_share, count(*)) as p90_note
    from hours
    group by trace, tier, method, llm, region
),

summed as (
    select
        trace, tier, method, llm, region, horizon_minutes,
        count(*) as buckets,
        sum(abs(forecast_per_s - actual_per_s)) as error,
        sum(actual_per_s) as came,
        sum(forecast_per_s) as expected,
        avg(smape_term(actual_per_s, forecast_per_s)) as smape_share,
        avg(abs(forecast_per_s - actual_per_s) / nullif(naive_step_per_s, 0)) as mase,
        sum(pinball_loss(actual_per_s, p50_per_s, 0.50)) as pinball_p50,
        sum(pinball_loss(actual_per_s, p90_per_s, 0.90)) as pinball_p90,
        sum(pinball_loss(actual_per_s, p95_per_s, 0.95)) as pinball_p95,
        count_if(actual_per_s <= p50_per_s) / count(*) as below_p50_share,
        count_if(actual_per_s <= p90_per_s) / count(*) as below_p90_share,
        count_if(actual_per_s <= p95_per_s) / count(*) as below_p95_share,
        count_if(fallback is not null) / count(*) as fallback_share,
        avg(cpu_s) as cpu_s
    from judged
    group by trace, tier, method, llm, region, horizon_minutes
)

select
    * exclude (expected),
    wape_share(error, came) as wape_share,
    max(came + expected) over (partition by trace, tier, llm, region, horizon_minutes) > 0 as is_living
from summed
inner join peaks using (trace, tier, method, llm, region)
