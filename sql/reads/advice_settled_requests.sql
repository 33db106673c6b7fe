-- advice_settled_requests: a day of a trace; the strictest tier replaces tiers from shares, and llms without a profile are replaced.
-- grain: request
-- reads: requests
-- units: as requests
select * exclude (trace, day) replace (
    if(list_contains($strange, coalesce(source_llm, llm)), coalesce($as_llm, llm), llm) as llm,
    if(tier_source = 'dealt', coalesce($tier, tier), tier) as tier,
    if(tier_source = 'dealt', coalesce($deadline_s, deadline_s), deadline_s) as deadline_s
)
from requests
where trace = $trace and day = $day::date
    and ($keeps or not list_contains($strange, coalesce(source_llm, llm)))
order by arrived_at, request_id
