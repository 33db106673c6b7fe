-- How many requests and tokens are forecast per hour, endpoint and tier, and how many came?
-- grain: trace, day, method, measure, tier, llm, region, cutoff
-- reads: forecasts
-- units: expected, came per second, mean of the hour; expected_p90 for the hour's largest bucket

select
    trace, day, method, measure, tier, llm, region, cutoff,
    avg(forecast_per_s) as expected,
    any_value(peak_p90_per_s) as expected_p90,
    avg(actual_per_s) as came
from forecasts
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
group by trace, day, method, measure, tier, llm, region, cutoff
order by trace, day, method, measure, tier, llm, region, cutoff
