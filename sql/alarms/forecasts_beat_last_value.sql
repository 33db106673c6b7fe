-- On no endpoint and tier was the last value better than the planned forecast by 5 % or more.
-- grain: trace, day, tier, llm, region
-- reads: forecasts
-- units: *_wape_share absolute error over real demand; null where that is 0
with summed as (
    select
        trace, day, tier, llm, region, method,
        wape_share(sum(abs(forecast_per_s - actual_per_s)), sum(actual_per_s)) as wape
    from forecasts
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
        and measure = 'input_tokens' and actual_per_s is not null
    group by trace, day, tier, llm, region, method
),

paired as (
    select
        trace, day, tier, llm, region, own.method,
        own.wape as own_wape_share,
        naive.wape as last_value_wape_share
    from summed as own
    inner join summed as naive using (trace, day, tier, llm, region)
    where own.method = $method and naive.method = 'last_value'
)

-- Of about a dozen endpoints, one is behind by less on most days by chance.
select * from paired
where own_wape_share > 1.05 * last_value_wape_share
