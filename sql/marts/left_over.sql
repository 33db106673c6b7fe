-- left_over: non-interactive requests that no instance had at the end of the day, and their remaining cost.
-- grain: trace, day, policy, llm
-- reads: outcomes, plans, fleet_hours
-- units: requests, tokens, GPU-hours, US dollars
-- backlog_gpu_hours = GPU-hours that the non-interactive requests not served by midnight would still need: at an instance's capacity, mean of its kinds, prefill and decode together where disaggregated; what spare capacity would have served for free is not known
with held as (
    select
        trace, day, policy,
        served_llm                as llm,
        count(*)                  as requests,
        sum(input_tokens)::bigint as input_tokens
    from outcomes
    where may_wait(is_held, tier) and status <> 'refused'
        and still_waits(arrived_at, earlier_s, held_s, day + interval 1 day)
    group by trace, day, policy, served_llm
),

sustained as (
    select trace, day, llm, role, avg(capacity_tokens_per_s / gpus_per_instance) as tokens_per_gpu_s
    from plans
    where policy = 'clairvoyant'
    group by trace, day, llm, role
),

priced as (
    select trace, day, policy, llm, role, avg(usd_per_gpu_hour) as usd_per_gpu_hour
    from fleet_hours
    group by trace, day, policy, llm, role
)

select
    trace, day, policy, llm,
    any_value(requests) as requests,
    any_value(input_tokens) as input_tokens,
    sum(input_tokens / tokens_per_gpu_s / 3600) as backlog_gpu_hours,
    sum(usd(input_tokens / tokens_per_gpu_s / 3600, usd_per_gpu_hour)) as backlog_usd
from held
inner join sustained using (trace, day, llm)
inner join priced using (trace, day, policy, llm, role)
group by trace, day, policy, llm
