-- all_plans: the plans that policies followed, made before the day (plans) or as it went (closed_plans), and those of days to come.
-- grain: trace, day, policy, llm, role, region, gpu, gpus_per_instance, hour_start
-- reads: plans, closed_plans, day_ahead_plans
-- units: as in plans, whose columns it has
-- decision_id = names this decision in exports, at the scaler and in grades
with together as (
    select * from plans
    where policy not in (select policy from closed_plans)
    union all by name
    select * from closed_plans
    union all by name
    select day_ahead_plans.*
    from day_ahead_plans
    anti join plans using (trace, day)
)

select
    *,
    decision_id(trace, policy, null, llm, role, region, gpu, gpus_per_instance, hour_start) as decision_id
from together
