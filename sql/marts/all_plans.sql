-- all_plans: the plans of all policies, made before the day (plans) or in closed loop (closed_plans), and those of coming days; for rolling plans the latest plan of each hour.
-- grain: trace, day, policy, llm, role, served_region, gpu, gpus_per_instance, hour_start
-- reads: plans, closed_plans, day_ahead_plans, rolling_plans
-- any of: plans, closed_plans, day_ahead_plans, rolling_plans
-- units: see plans, which has the other columns
-- served_region = where the instances are
-- usd = cost of the instances: the planned ones
-- sustained_tokens_per_s = capacity that the plan assumes of all instances of the row, less in small pools
-- made_at = time of planning of a rolling plan, UTC; null for other plans
with together as (
    select * from plans
    where policy not in (select policy from closed_plans)
    union all by name
    select * from closed_plans
    union all by name
    select day_ahead_plans.*
    from day_ahead_plans
    anti join plans using (trace, day)
    union all by name
    select * exclude (made_day)
    from rolling_plans
    qualify row_number() over (
        partition by trace, llm, role, served_region, gpu, gpus_per_instance, hour_start order by made_at desc
    ) = 1
)

select
    * replace (sustained_by_plan(sustained_tokens_per_s, instances, capacity_tokens_per_s) as sustained_tokens_per_s),
    decision_id(trace, policy, made_at, llm, role, served_region, gpu, gpus_per_instance, hour_start) as decision_id
from together
