-- How much worse is a forecast made at midnight for the whole day than one made every hour for the next hour?
-- Only endpoints that had demand on the day or a forecast above 0: for all others any quantile holds.
-- grain: trace, day, method, llm
-- reads: day_ahead_forecasts, forecasts
-- units: *_wape_share absolute error over real demand; *_p90_share share of hours whose peak was at or below its P90
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
        max(actual_per_s) <= any_value(peak_p90_per_s) as is_below_p90,
        max(greatest(actual_per_s, forecast_per_s)) as highest
    from together
    where
        trace = coalesce($trace, trace) and day = coalesce($day::date, day)
        and measure = 'input_tokens' and tier = 'interactive' and actual_per_s is not null
    group by all
),

judged as (
    select *, max(highest) over (partition by trace, day, llm, region) > 0 as is_living
    from hours
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
        avg(is_below_p90::int) filter (where is_living and made = 'hour_ahead') as hour_ahead_peak_below_p90_share,
        avg(is_below_p90::int) filter (where is_living and made = 'day_ahead') as day_ahead_peak_below_p90_share
    from judged
    group by trace, day, method, llm
)

select * from compared
where day_ahead_wape_share is not null
order by trace, day, method, llm
