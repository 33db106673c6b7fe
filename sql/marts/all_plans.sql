-- all_plans: the plans that policies followed, those made ahead (plans) and those made as it went (closed_plans).
-- grain: trace, day, policy, llm, region, gpu, hour_start
-- reads: plans, closed_plans
-- units: as in plans, whose columns it has
with together as (
    select * from plans
    where policy not in (select policy from closed_plans)
    union all by name
    select * from closed_plans
)

select * from together
