-- forecast_errors: quality of a day's forecasts: error, coverage of the P90, how often a peak exceeded its forecast.
-- A living endpoint had demand on the day, or a method forecast some. For all others any quantile holds.
-- grain: trace, day, measure, tier, method, llm
-- reads: forecasts
-- tier = urgency class, or interactive: the sum of all tiers that are not deferred
-- units: wape_share = absolute error in what came; other shares 0 to 1, of living endpoints
-- note = methods that are worse than the last value
with hours as (
    select
        trace, day, measure, tier, method, llm, region, cutoff,
        count(*) as buckets,
        sum(abs(forecast_per_s - actual_per_s)) as error,
        sum(actual_per_s) as came,
        count_if(actual_per_s <= p90_per_s) as below_p90,
        max(forecast_per_s) as expected_peak,
        max(actual_per_s) as peak,
        any_value(peak_p90_per_s) as peak_p90
    from forecasts
    where actual_per_s is not null
    group by trace, day, measure, tier, method, llm, region, cutoff
),

judged as (
    select
        *,
        max(greatest(came, expected_peak)) over (partition by trace, day, measure, tier, llm, region) > 0 as is_living
    from hours
),

summed as (
    select
        trace, day, measure, tier, method, llm,
        wape_share(sum(error), sum(came)) as wape_share,
        sum(below_p90) filter (is_living) / sum(buckets) filter (is_living) as below_p90_share,
        avg((peak > expected_peak)::int) filter (is_living) as under_share,
        avg((peak <= peak_p90)::int) filter (is_living) as peak_below_p90_share
    from judged
    group by trace, day, measure, tier, method, llm
)

select
    summed.*,
    if(summed.wape_share > naive.wape_share, 'worse than the last value', null) as note
from summed
left join summed as naive
    on summed.trace = naive.trace and summed.day = naive.day and summed.llm = naive.llm
    and summed.measure = naive.measure and summed.tier = naive.tier
    and naive.method = 'last_value'
