-- forecast_coverage: whether the P90 of each hour's peak holds, by series, over all days with forecasts.
-- grain: trace, measure, tier, method, llm, region, made
-- reads: forecasts, day_ahead_forecasts
-- units: *_share 0 to 1; hours
-- made = hour_ahead, or day_ahead: at midnight, for the whole day
-- hours = number of hours with a forecast and a real demand
with together as (
    select 'hour_ahead' as made, * from forecasts
    union all by name
    select 'day_ahead' as made, * from day_ahead_forecasts
),

hourly as (
    select
        trace, measure, tier, method, llm, region, made, date_trunc('hour', bucket_start) as hour_start,
        max(actual_per_s) <= any_value(peak_p90_per_s) as is_below_p90,
        sum(abs(forecast_per_s - actual_per_s)) as error,
        sum(actual_per_s) as came,
        max(greatest(actual_per_s, forecast_per_s)) as highest
    from together
    where actual_per_s is not null
    group by all
)

select
    trace, measure, tier, method, llm, region, made,
    count(*) as hours,
    count_if(is_below_p90) / count(*) as peak_below_p90_share,
    wape_share(sum(error), sum(came)) as wape_share,
    p90_note(peak_below_p90_share, count(*)) as p90_note
from hourly
group by trace, measure, tier, method, llm, region, made
having max(highest) > 0
