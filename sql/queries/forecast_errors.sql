-- How good are the forecasts? Error, and how often the hour's peak was above what was forecast, per method and llm.
-- grain: trace, day, method, llm
-- reads: forecasts
-- units: wape_share = absolute error in what came; under_share = hours whose peak came out above its forecast
with peaks as (
    select
        trace, day, method, llm, region, cutoff,
        sum(abs(input_tokens_per_s - actual_input_tokens_per_s)) as error,
        sum(actual_input_tokens_per_s) as came,
        max(input_tokens_per_s) as expected_peak,
        max(actual_input_tokens_per_s) as peak
    from forecasts
    where actual_input_tokens_per_s is not null
    group by trace, day, method, llm, region, cutoff
),

summed as (
    select
        trace, day, method, llm,
        sum(error) / nullif(sum(came), 0) as wape_share,
        count_if(peak > expected_peak) / count(*) as under_share
    from peaks
    group by trace, day, method, llm
)

select * from summed
order by trace, day, llm, wape_share
