-- load_by_hour: requests and tokens per second per tier, region, llm and app over time (SageServe figures 3 to 5).
-- grain: trace, tier, region, llm, app, hour_start
-- reads: demand
-- units: *_per_s means over the hour; tokens
-- trace = name of the trace <- demand.trace
-- day = UTC <- demand.day
-- hour_start = first instant of the hour, UTC <- demand.bucket_start
-- tier = urgency class <- demand.tier
-- region = where the requests come from <- demand.region
-- llm = the served network <- demand.llm
-- app = the application <- demand.app
-- requests = number of requests: those that arrive in the hour <- demand.requests
-- requests_per_s = requests per second <- demand.requests
-- tokens_per_s = input and output tokens of these requests, TPS <- demand.input_tokens, demand.output_tokens
with summed as (
    select
        trace, day,
        time_bucket(interval 1 hour, bucket_start) as hour_start,
        tier, region, llm, app,
        sum(requests)::bigint as requests,
        sum(input_tokens + output_tokens)::bigint as tokens
    from demand
    group by all
)

select
    trace, day, hour_start, tier, region, llm, app, requests,
    requests / 3600 as requests_per_s,
    tokens / 3600 as tokens_per_s
from summed
