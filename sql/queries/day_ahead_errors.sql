-- What does a forecast lose when it is made at midnight for the whole day instead of every hour for the next one?
-- grain: trace, day, method, llm
-- reads: day_ahead_forecasts, forecasts
-- units: *_wape_share absolute error in what came; *_p90_share hours whose peak came out at or below its P90
with together as (
    select 'hour_ahead' as made, * from forecasts
    union all by name
    select 'day_ahead' as made, * from day_ahead_forecasts
),

hours as (
    select
        made, trace, day, method, llm, region, date_trunc('hour', bucket_start) as hour_start,
        sum(abs(forecast_per_s - actual_per_s)) as error,
        sum(actual_per_s) as came,
        max(actual_per_s) <= any_value(peak_p90_per_s) as is_below_p90
    from together
    where measure = 'input_tokens' and tier = 'interactive' and actual_per_s is not null
    group by all
),

compared as (
    select
        trace, day, method, llm,
        wape_share(
            sum(error) filter (where made = 'hour_ahead'), sum(came) filter (where made = 'hour_ahead')
        ) as hour_ahead_wape_share,
        wape_share(
            sum(error) filter (where made = 'day_ahead'), sum(came) filter (where made = 'day_ahead')
        ) as day_ahead_wape_share,
        avg(is_below_p90::int) filter (where made = 'hour_ahead') as hour_ahead_peak_below_p90_share,
        avg(is_below_p90::int) filter (where made = 'day_ahead') as day_ahead_peak_below_p90_share
    from hours
    group by trace, day, method, llm
)

select * from compared
where day_ahead_wape_share is not null
order by trace, day, method, llm
