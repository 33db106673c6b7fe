-- How many requests and output tokens are expected per hour and endpoint, and how many came?
-- grain: trace, day, measure, llm, region, cutoff
-- reads: traffic_forecasts
-- units: expected, came per second in the mean of the hour; expected_p90 of the hour's largest bucket
with hours as (
    select
        trace, day, measure, llm, region, cutoff,
        avg(per_s) as expected,
        any_value(peak_p90_per_s) as expected_p90,
        avg(actual_per_s) as came
    from traffic_forecasts
    group by trace, day, measure, llm, region, cutoff
)

select * from hours
order by trace, day, measure, llm, region, cutoff
