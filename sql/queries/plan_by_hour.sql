-- How many instances has each plan in every hour, what do they cost, and what can the plan not carry?
-- grain: trace, day, policy, hour_start
-- reads: all_plans
-- units: counts of instances and GPUs, usd US dollars of the hour, *_tokens_per_s input tokens/s; of $region or of all regions
-- fullest_share = largest load of an endpoint, with the buffer, over what its pools sustain
-- short_tokens_per_s = capacity that regions are short of for their share of demand
-- short_llm_tokens_per_s = capacity that llms are short of in all regions together
with services as (
    select
        trace, day, policy, hour_start, llm, role, served_region,
        sum(instances) as instances,
        sum(reclaimed) as reclaimed,
        sum(started) as started,
        sum(donated) as donated,
        sum(instances * gpus_per_instance) as gpus,
        sum(usd) as usd,
        any_value(demand_tokens_per_s + buffer_tokens_per_s)
        / nullif(sum(sustained_tokens_per_s), 0) as load_share,
        any_value(short_tokens_per_s) as short_tokens_per_s,
        any_value(short_llm_tokens_per_s) as short_llm_tokens_per_s
    from all_plans
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
        and policy = coalesce($policy, policy) and served_region = coalesce($region, served_region)
    group by trace, day, policy, hour_start, llm, role, served_region
),

endpoints as (
    select
        trace, day, policy, hour_start, llm, served_region,
        row_number() over (partition by trace, day, policy, hour_start, llm order by served_region) as nth_region,
        sum(instances) as instances,
        sum(reclaimed) as reclaimed,
        sum(started) as started,
        sum(donated) as donated,
        sum(gpus) as gpus,
        sum(usd) as usd,
        max(load_share) as load_share,
        max(short_tokens_per_s) as short_tokens_per_s,
        max(short_llm_tokens_per_s) as short_llm_tokens_per_s
    from services
    group by trace, day, policy, hour_start, llm, served_region
)

select
    trace, day, policy, hour_start,
    sum(instances)::bigint as instances,
    sum(reclaimed)::bigint as reclaimed,
    sum(started)::bigint as started,
    sum(donated)::bigint as donated,
    sum(gpus)::bigint as gpus,
    sum(usd) as usd,
    max(load_share) as fullest_share,
    sum(short_tokens_per_s) as short_tokens_per_s,
    sum(short_llm_tokens_per_s) filter (where nth_region = 1) as short_llm_tokens_per_s
from endpoints
group by trace, day, policy, hour_start
order by trace, day, policy, hour_start
