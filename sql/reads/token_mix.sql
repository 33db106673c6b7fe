-- token_mix: a sample of each llm's requests of a day with their tokens, and the prompt tokens that a cache has ($prefix).
-- With blocks: blocks that an earlier request of the day had, the hits of one cache without eviction.
-- grain: request
-- reads: requests
-- units: tokens; requests
with blocks as (
    select request_id, llm, arrived_at, input_tokens, unnest(prefix_hashes) as hash
    from requests
    where trace = $trace and day = $day and $prefix = 'blocks'
),

dated as (select *, min(arrived_at) over (partition by llm, hash) as first_at from blocks),

cached as (
    select request_id, least(cached_tokens, input_tokens) as tokens
    from requests
    where trace = $trace and day = $day and cached_tokens is not null and $prefix = 'given'
    union all
    select request_id, least(count(*) * $block, any_value(input_tokens)) as tokens
    from dated
    where first_at < arrived_at
    group by request_id
)

select
    llm, tier, app, query_id, input_tokens, output_tokens, coalesce(cached.tokens, 0) as cached_tokens,
    count(*) over (partition by llm) as requests
from requests
left join cached using (request_id)
where trace = $trace and day = $day and list_contains($tiers, tier)
qualify row_number() over (partition by llm order by hash(request_id)) <= $size
order by hash(request_id)
