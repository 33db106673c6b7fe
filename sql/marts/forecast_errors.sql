-- forecast_errors: how good the forecasts of a day were: error, whether P90 holds, how often a peak was above its forecast.
-- A living endpoint had demand on the day, or some method expected it to: of the others any quantile holds.
-- grain: trace, day, measure, tier, method, llm
-- reads: forecasts
-- tier = urgency class, or interactive: all that nobody holds back as one series
-- units: wape_share = absolute error in what came; other shares 0 to 1, of living endpoints
-- below_p90_share = buckets that came out at or below their P90
-- under_share = hours whose peak came out above the largest bucket of the mean forecast
-- peak_below_p90_share = hours whose peak came out at or below its own P90
-- note = methods that do worse than the last value
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
),

compared as (
    select
        summed.*,
        if(summed.wape_share > naive.wape_share, 'worse than the last value', null) as note
    from summed
    left join summed as naive
        on summed.trace = naive.trace and summed.day = naive.day and summed.llm = naive.llm
        and summed.measure = naive.measure and summed.tier = naive.tier
        and naive.method = 'last_value'
)

select * from compared
