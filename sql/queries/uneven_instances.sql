-- Do the instances of a region have equal load? Tokens per minute by serving instance and hour (SageServe figure 6e).
-- grain: trace, day, policy, served_region, llm, hour_start
-- reads: outcomes
-- units: *_tokens input and output tokens per minute and instance, by the minute of the first token
with by_minute as (
    select
        trace, day, policy,
        served_region,
        served_llm as llm,
        instance,
        time_bucket(interval 1 minute, arrived_at + to_microseconds((1e6 * ttft_s)::bigint)) as minute,
        sum(input_tokens + output_tokens) as tokens
    from outcomes
    where day = coalesce($day::date, day) and trace = coalesce($trace, trace) and status = 'finished'
    group by all
)

select
    trace, day, policy, served_region, llm,
    time_bucket(interval 1 hour, minute) as hour_start,
    count(distinct instance) as instances,
    percentiles(tokens)[1] as p50_tokens,
    percentiles(tokens)[3] as p95_tokens,
    percentiles(tokens)[4] as p99_tokens
from by_minute
group by all
order by trace, day, policy, served_region, llm, hour_start
