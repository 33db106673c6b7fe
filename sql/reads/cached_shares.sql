-- cached_shares: share of the prompt tokens of each hour that the engines found in their prefix cache.
-- grain: llm, region, hour
-- reads: requests
-- units: hour of the day, UTC; share of tokens; requests
select
    llm, region, hour(arrived_at) as hour,
    sum(cached_tokens) / sum(input_tokens) as share, count(*) as requests
from requests
where trace = $trace and day = $day and cached_tokens is not null
group by all
