-- Every day-ahead forecast is made at midnight and covers each bucket of the day once, as a number from 0.
-- grain: trace, day, method, measure, tier, llm, region
-- reads: day_ahead_forecasts
-- units: least of the measure per second
with counted as (
    select
        trace, day, method, measure, tier, llm, region,
        count(*) as buckets,
        count(distinct bucket_start) filter (where bucket_start::date = day and cutoff = day) as distinct_buckets,
        1440 // any_value(bucket_minutes) as wanted,
        coalesce(min(forecast_per_s), -1) as least,
        count_if(forecast_per_s is null or not isfinite(forecast_per_s)) as not_numbers
    from day_ahead_forecasts
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day, method, measure, tier, llm, region
)

select * from counted
where buckets <> wanted or distinct_buckets <> wanted or least < 0 or not_numbers > 0
