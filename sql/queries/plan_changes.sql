-- What does each plan change in each hour, and why?
-- grain: trace, day, policy, hour_start, llm, role, served_region, gpu, gpus_per_instance
-- reads: all_plans
-- units: instances; reclaimed from spot, started cold, donated to spot

select
    trace, day, policy, hour_start, llm, role, served_region, gpu, gpus_per_instance,
    instances_before, instances, reclaimed, started, donated, why
from all_plans
where why is not null
    and trace = coalesce($trace, trace) and day = coalesce($day::date, day) and policy = coalesce($policy, policy)
order by trace, day, policy, hour_start, llm, role, served_region, gpu, gpus_per_instance
