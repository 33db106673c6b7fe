-- largest_apps: input tokens of each endpoint's large apps by bucket; all its other apps have the name ''.
-- An app is large if it has at least $least_share of the endpoint's tokens before $known_until.
-- grain: llm, region, app, bucket_start
-- reads: demand
-- units: tokens
with binned as (
    select llm, region, app, bucket_start, sum(input_tokens) as input_tokens
    from demand_by($minutes)
    where trace = $trace and day between $first_day and $last_day and list_contains($tiers, tier)
    group by llm, region, app, bucket_start
),

large as (
    select llm, region, app
    from binned
    where bucket_start < $known_until
    group by llm, region, app
    qualify sum(input_tokens) >= $least_share * sum(sum(input_tokens)) over (partition by llm, region)
)

select llm, region, coalesce(large.app, '') as app, bucket_start, sum(binned.input_tokens)::bigint as input_tokens
from binned
left join large using (llm, region, app)
group by all
order by all
