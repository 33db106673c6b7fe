-- No endpoint left the quantiles of the planned forecast so often in a day that its demand must have changed.
-- grain: trace, day, llm, region
-- reads: forecasts
-- units: hours of the day whose largest bucket was above its P95, or above or below its P50
-- Of 24 hours 1.2 should be above the P95 and 12 above the P50. Six, and 22 on one side, happen by chance once in a
-- thousand and once in thirty thousand days if hours are independent; they are not quite, so it is only an alarm.
with hours as (
    select
        trace, day, llm, region, cutoff,
        max(actual_per_s) as peak,
        any_value(peak_p50_per_s) as peak_p50,
        any_value(peak_p95_per_s) as peak_p95
    from forecasts
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day) and method = $method
        and measure = 'input_tokens' and tier = 'interactive'
    group by trace, day, llm, region, cutoff
    having count(actual_per_s) = count(*)
),

counted as (
    select
        trace, day, llm, region,
        count_if(peak > peak_p95) as hours_above_p95,
        count_if(peak > peak_p50) as hours_above_p50,
        count_if(peak < peak_p50) as hours_below_p50
    from hours
    group by trace, day, llm, region
)

select * from counted
where hours_above_p95 >= 6 or hours_above_p50 >= 22 or hours_below_p50 >= 22
