-- Every method forecasts every bucket of the day once for every llm, region and tier, with a number from 0; at midnight too.
-- grain: made, trace, day, method, measure, tier, llm, region
-- reads: forecasts, day_ahead_forecasts
-- units: smallest value of the measure per second; made hourly or at_midnight
with every_forecast as (
    select 'hourly' as made, * from forecasts
    union all by name
    select 'at_midnight' as made, * from day_ahead_forecasts
),

counted as (
    select
        made, trace, day, method, measure, tier, llm, region,
        count(*) as buckets,
        count(distinct bucket_start) filter (
            where bucket_start::date = day and (made = 'hourly' or cutoff in (day, day - interval 1 day))
        ) as distinct_buckets,
        1440 // any_value(bucket_minutes) as wanted,
        coalesce(min(forecast_per_s), -1) as least,
        count_if(forecast_per_s is null or not isfinite(forecast_per_s)) as not_numbers
    from every_forecast
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by made, trace, day, method, measure, tier, llm, region
)

select * from counted
where buckets <> wanted or distinct_buckets <> wanted or least < 0 or not_numbers > 0
