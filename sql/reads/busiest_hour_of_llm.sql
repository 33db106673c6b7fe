-- busiest_hour_of_llm: the requests of an llm in its busiest hour of the day.
-- grain: request
-- reads: requests
-- units: seconds since 1970; tokens
with of_llm as (
    select *, date_trunc('hour', arrived_at) as hour_start from requests
    where trace = $trace and day = $day and llm = $llm and list_contains($tiers, tier)
),
hours as (select hour_start, sum(input_tokens) as tokens from of_llm group by hour_start)
select
    epoch(arrived_at) as arrival_s, app, input_tokens, output_tokens,
    coalesce(cached_tokens, 0) as cached_tokens
from of_llm
where hour_start = (select hour_start from hours order by tokens desc, hour_start limit 1)
order by arrived_at, request_id
