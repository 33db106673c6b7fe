-- Shadow mode: what would the corrected plan have held in each hour, against what each policy really ran, on the true demand?
-- grain: trace, day, policy, hour_start
-- reads: fleet_by_hour, plans
-- units: *_gpus GPUs (mean over the hour), *_usd US dollars, *_short_endpoints endpoints below 80 % of their true peak
with plan as (
    select
        trace, day, hour_start, llm, region, gpu, usd as plan_usd,
        instances * gpus_per_instance as plan_gpus
    from plans
    where policy = 'corrected'
),

compared as (
    select
        trace, day, fleet_by_hour.policy as policy, hour_start,
        sum(held_gpus) as held_gpus,
        sum(plan_gpus) as plan_gpus,
        sum(usd) as held_usd,
        sum(plan_usd) as plan_usd,
        sum(usd) - sum(plan_usd) as saved_usd,
        count_if(held_gpus < 0.8 * needed_gpus) as held_short_endpoints,
        count_if(plan_gpus < 0.8 * needed_gpus) as plan_short_endpoints
    from fleet_by_hour
    inner join plan using (trace, day, hour_start, llm, region, gpu)
    group by trace, day, fleet_by_hour.policy, hour_start
)

select * from compared
order by trace, day, policy, hour_start
