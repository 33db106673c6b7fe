-- minute_percentiles: how unevenly the load of an endpoint is distributed within an hour: percentiles over its sixty minutes.
-- grain: trace, region, llm, hour_start
-- reads: demand
-- units: requests and tokens per minute; a minute without a request counts as 0
-- trace = name of the trace <- demand.trace
-- region = where the requests come from <- demand.region
-- llm = the served network <- demand.llm
-- hour_start = first instant of the hour, UTC <- demand.bucket_start
-- requests_p50 = requests of a median minute <- demand.requests
-- requests_p95 = exceeded by three minutes of the hour <- demand.requests
-- requests_max = requests of the busiest minute <- demand.requests
-- tokens_p50 = input and output tokens of a median minute <- demand.input_tokens, demand.output_tokens
-- tokens_p95 = exceeded by three minutes of the hour <- demand.input_tokens, demand.output_tokens
-- tokens_max = tokens of the busiest minute <- demand.input_tokens, demand.output_tokens
with by_minute as (
    select
        trace, region, llm, bucket_start,
        sum(requests)::double as requests,
        sum(input_tokens + output_tokens)::double as tokens
    from demand
    group by trace, region, llm, bucket_start
),

by_hour as (
    select
        trace, region, llm,
        time_bucket(interval 1 hour, bucket_start) as hour_start,
        list_resize(list(requests), 60, 0.0) as requests,
        list_resize(list(tokens), 60, 0.0) as tokens
    from by_minute
    group by all
)

select
    trace, region, llm, hour_start,
    list_aggregate(requests, 'quantile_cont', 0.5) as requests_p50,
    list_aggregate(requests, 'quantile_cont', 0.95) as requests_p95,
    list_max(requests) as requests_max,
    list_aggregate(tokens, 'quantile_cont', 0.5) as tokens_p50,
    list_aggregate(tokens, 'quantile_cont', 0.95) as tokens_p95,
    list_max(tokens) as tokens_max
from by_hour
