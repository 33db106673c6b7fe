-- advice_requests_by_hour: the interactive requests of a trace with their position in the hour; all requests if none is interactive.
-- grain: request
-- reads: requests
-- units: seconds after the hour; tokens
with tagged as (select *, list_contains($tiers, tier) as is_interactive from requests where trace = $trace)

select
    date_trunc('hour', arrived_at) as hour_start, region, llm,
    epoch(arrived_at - date_trunc('hour', arrived_at)) as arrival_s, input_tokens, output_tokens,
    coalesce(cached_tokens, 0) as cached_tokens
from tagged
where is_interactive or not (select bool_or(is_interactive) from tagged)
order by arrived_at, request_id
