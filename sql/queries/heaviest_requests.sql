-- Which requests are the longest? Tokens per request of every tier, llm and region (SageServe section 3 found niw of one llm).
-- grain: trace, tier, llm, region
-- reads: load_by_hour
-- units: tokens per request, input and output; of_mean 1 is the trace's mean
with summed as (
    select
        trace, tier, llm, region,
        sum(requests)::bigint as requests,
        3600 * sum(tokens_per_s) as tokens
    from load_by_hour
    group by trace, tier, llm, region
)

select
    trace, tier, llm, region, requests,
    tokens / requests as tokens_per_request,
    tokens / requests / (sum(tokens) over (partition by trace) / sum(requests) over (partition by trace)) as of_mean
from summed
order by trace, of_mean desc
