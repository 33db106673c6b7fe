-- advice_plan: the plan made the day before, for a coming day ($table is day_ahead_plans) or for one that ran (plans).
-- grain: hour, region, llm, role, gpu
-- reads: day_ahead_plans, plans
-- units: tokens per second; USD
with planned as (
    select 'day_ahead_plans' as of_table, * from day_ahead_plans
    union all by name
    select 'plans' as of_table, * from plans
)

select
    hour(hour_start)::bigint as hour, served_region as region, llm, role, gpu, gpus_per_instance, instances,
    demand_tokens_per_s, capacity_tokens_per_s,
    sustained_by_plan(sustained_tokens_per_s, instances, capacity_tokens_per_s) as sustained_tokens_per_s,
    short_tokens_per_s, usd, why
from planned
where of_table = $table and trace = $trace and day = $day and policy = 'day_ahead'
order by hour_start, region, llm, role, gpu
