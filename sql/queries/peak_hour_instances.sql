-- Do the instances of an endpoint have equal load in the busiest hour? Tokens per minute by instance (SageServe figure 6e).
-- grain: trace, day, policy, served_region, llm, minute
-- reads: outcomes
-- units: *_tokens input and output tokens of a minute's arrivals on one instance; percentiles over instances with arrivals
with finished_requests as (
    select
        trace, day, policy, instance,
        served_region,
        served_llm as llm,
        time_bucket(interval 1 hour, arrived_at) as hour_start,
        time_bucket(interval 1 minute, arrived_at) as minute,
        input_tokens + output_tokens as tokens
    from outcomes
    where
        day = coalesce($day::date, day) and trace = coalesce($trace, trace)
        and policy = coalesce($policy, policy) and status = 'finished'
),

busiest as (
    select trace, day, policy, hour_start
    from finished_requests
    group by trace, day, policy, hour_start
    qualify row_number() over (partition by trace, day, policy order by count(*) desc, hour_start) = 1
),

by_instance as (
    select trace, day, policy, served_region, llm, minute, instance, sum(tokens) as tokens
    from finished_requests
    inner join busiest using (trace, day, policy, hour_start)
    group by all
)

select
    trace, day, policy, served_region, llm, minute,
    count(*) as instances,
    percentiles(tokens)[1] as p50_tokens,
    percentiles(tokens)[3] as p95_tokens,
    percentiles(tokens)[4] as p99_tokens
from by_instance
group by all
order by trace, day, policy, served_region, llm, minute
