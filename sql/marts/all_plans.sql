-- all_plans: the plans that policies followed, made before the day (plans) or as it went (closed_plans), and those of days to come; of rolling plans, for each hour the one that was made last.
-- grain: trace, day, policy, llm, role, region, gpu, gpus_per_instance, hour_start
-- reads: plans, closed_plans, day_ahead_plans, rolling_plans
-- units: as in plans, whose columns it has
-- made_at = when a rolling plan was made, UTC; null of the others
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
    union all by name
    select * exclude (made_day)
    from rolling_plans
    qualify row_number() over (
        partition by trace, llm, role, region, gpu, gpus_per_instance, hour_start order by made_at desc
    ) = 1
)

select
    *,
    decision_id(trace, policy, made_at, llm, role, region, gpu, gpus_per_instance, hour_start) as decision_id
from together
