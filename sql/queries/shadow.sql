-- Shadow mode: how many GPUs would the corrected plan have had in each hour, compared with those that each policy ran, on the true demand?
-- grain: trace, day, policy, hour_start
-- reads: fleet_by_hour, plans
-- units: *_gpus GPUs (mean over the hour), *_usd US dollars, *_short_endpoints endpoints below 80 % of their true peak
with plan as (
    select
        trace, day, hour_start, llm, role, served_region,
        sum(usd) as plan_usd,
        sum(instances * gpus_per_instance) as plan_gpus
    from plans
    where policy = 'corrected' and trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day, hour_start, llm, role, served_region
),

held as (
    select
        trace, day, policy, hour_start, llm, role, served_region,
        sum(usd) as usd,
        sum(held_gpus) as held_gpus,
        sum(needed_gpus) as needed_gpus
    from fleet_by_hour
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day, policy, hour_start, llm, role, served_region
)

select
    trace, day, policy, hour_start,
    sum(held_gpus) as held_gpus,
    sum(plan_gpus) as plan_gpus,
    sum(usd) as held_usd,
    sum(plan_usd) as plan_usd,
    sum(usd) - sum(plan_usd) as saved_usd,
    count_if(held_gpus < 0.8 * needed_gpus) as held_short_endpoints,
    count_if(plan_gpus < 0.8 * needed_gpus) as plan_short_endpoints
from held
inner join plan using (trace, day, hour_start, llm, role, served_region)
group by trace, day, policy, hour_start
order by trace, day, policy, hour_start
