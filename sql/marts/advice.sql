-- advice: the planned instances of each hour before it began: day-ahead plans as exported and served, and rolling plans.
-- grain: trace, day, policy, llm, role, served_region, gpu, gpus_per_instance, hour_start
-- reads: day_ahead_plans, plans, all_plans
-- units: instances; usd US dollars of the hour; instants are UTC
-- served_region = where the instances are
-- usd = cost of the instances: the planned ones
-- made_at = time of planning of a rolling plan, UTC; null for other plans
with given as (
    select * from day_ahead_plans
    union all by name
    select plans.*
    from plans
    anti join day_ahead_plans using (trace, day)
    where plans.policy = 'day_ahead'
    union all by name
    select * exclude (decision_id)
    from all_plans
    where policy = 'rolling'
)

select
    trace, day, policy, hour_start, llm, role, served_region, gpu, gpus_per_instance, instances, usd, made_at,
    decision_id(trace, policy, made_at, llm, role, served_region, gpu, gpus_per_instance, hour_start) as decision_id
from given
