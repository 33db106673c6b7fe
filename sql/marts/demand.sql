-- demand: requests and tokens by region, llm, tier, app and minute of one day of one trace.
-- grain: region, llm, tier, app, bucket_start
-- reads: requests
-- units: tokens; a bucket covers [bucket_start, bucket_start + 1 minute), UTC
-- region varchar = where the requests come from <- requests.region
-- llm varchar = the served network, as requested <- requests.llm
-- tier varchar = urgency class <- requests.tier
-- app varchar = the application <- requests.app
-- bucket_start timestamptz = first instant of the bucket, a minute, UTC <- requests.arrived_at
-- requests bigint = number of requests: those that arrive in the minute <- requests.request_id
-- input_tokens bigint = input tokens of the row's requests <- requests.input_tokens
-- output_tokens bigint = output tokens of the row's requests <- requests.output_tokens
with arrivals as (
    select
        *,
        date_trunc('minute', arrived_at) as bucket_start
    from requests
    where trace = $trace and day = $day::date
)

select
    region,
    llm,
    tier,
    app,
    bucket_start,
    count(*)                   as requests,
    sum(input_tokens)::bigint  as input_tokens,
    sum(output_tokens)::bigint as output_tokens
from arrivals
group by region, llm, tier, app, bucket_start
order by bucket_start, region, llm, tier, app
