-- streams: requests and tokens per minute of the whole trace and of its parts, the input of the characterisation.
-- grain: trace, tier, region, llm, app, bucket_start
-- reads: demand
-- units: tokens; a bucket covers [bucket_start, bucket_start + 1 minute), UTC
-- trace = name of the trace <- demand.trace
-- tier = urgency class, or all <- demand.tier
-- region = where the requests come from, or all <- demand.region
-- llm = the served network, or all <- demand.llm
-- app = the application, or all <- demand.app
-- bucket_start = first instant of the bucket, a minute, UTC <- demand.bucket_start
-- requests = number of requests: those that arrive in the minute <- demand.requests
-- tokens = number of tokens: input and output of these requests <- demand.input_tokens, demand.output_tokens

select
    trace,
    if(grouping(tier) = 1, 'all', tier) as tier,
    if(grouping(region) = 1, 'all', region) as region,
    if(grouping(llm) = 1, 'all', llm) as llm,
    if(grouping(app) = 1, 'all', app) as app,
    bucket_start,
    sum(requests)::bigint as requests,
    sum(input_tokens + output_tokens)::bigint as tokens
from demand
group by grouping sets (
    (trace, bucket_start),
    (trace, bucket_start, tier),
    (trace, bucket_start, region),
    (trace, bucket_start, llm),
    (trace, bucket_start, app),
    (trace, bucket_start, tier, region)
)
