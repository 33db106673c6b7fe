-- source_latency: latencies measured when the trace was recorded, where its source has them (SageServe figure 6c).
-- grain: trace, tier, region, llm
-- reads: requests
-- units: seconds; percentiles linear between ranks, over the requests whose source has the time
-- trace = name of the trace <- requests.trace
-- tier = urgency class <- requests.tier
-- region = where the requests come from <- requests.region
-- llm = the served network <- requests.llm
-- requests = number of requests: those with at least one of the two times <- requests.request_id
-- ttft_mean_s = time to first token, mean
-- e2e_mean_s = time to the last token, mean
-- e2e_p50_s = time to the last token, median
-- e2e_p99_s = time to the last token, 99th percentile
with timed as (
    select null::varchar as trace, null::double as source_ttft_s, null::double as source_e2e_s
    where false
    union all by name
    select * from requests
),

summed as (
    select
        trace, tier, region, llm,
        count(*) as requests,
        avg(source_ttft_s) as ttft_mean_s,
        percentiles(source_ttft_s) as ttft,
        avg(source_e2e_s) as e2e_mean_s,
        percentiles(source_e2e_s) as e2e
    from timed
    where source_ttft_s is not null or source_e2e_s is not null
    group by trace, tier, region, llm
)

select
    trace, tier, region, llm, requests,
    ttft_mean_s, ttft[1] as ttft_p50_s, ttft[3] as ttft_p95_s, ttft[4] as ttft_p99_s,
    e2e_mean_s, e2e[1] as e2e_p50_s, e2e[3] as e2e_p95_s, e2e[4] as e2e_p99_s
from summed
