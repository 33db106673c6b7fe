-- advice_trace_of_demand: summary of the trace of a nightly run by its demand.
-- grain: one row
-- reads: demand
-- units: requests; UTC instants; tokens
select
    sum(requests)::bigint as requests, min(bucket_start) as first_at, max(bucket_start) as last_at,
    sum(input_tokens)::double as input_tokens, sum(output_tokens)::double as output_tokens,
    count(distinct app)::bigint as apps, any_value(app) as app,
    list(distinct region order by region) as regions, list(distinct tier order by tier) as tiers,
    list(distinct llm order by llm) as llms
from demand
where trace = $trace and day between $first and $last
