-- plan_rows: the plan of a policy from $first to $last, by endpoint and kind of instance; of $region or of all regions.
-- grain: day, region, llm, gpu, gpus_per_instance, role, hour_start
-- reads: all_plans
-- units: those of plans
select * rename (served_region as region)
from all_plans
where trace = $trace and policy = $policy and day between $first and $last
    and served_region = coalesce($region, served_region)
order by served_region, llm, gpu, gpus_per_instance, role, hour_start
