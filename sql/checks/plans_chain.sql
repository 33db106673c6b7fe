-- Every hour of a plan begins with the planned instances of the hour before.
-- grain: trace, day, policy, llm, role, served_region, gpu, gpus_per_instance, hour_start
-- reads: plans
-- units: instances
with paired as (
    select
        *,
        lag(instances) over (
            partition by trace, day, policy, llm, role, served_region, gpu, gpus_per_instance order by hour_start
        ) as planned_before
    from plans
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
)

select
    trace, day, policy, llm, role, served_region, gpu, gpus_per_instance, hour_start,
    planned_before, instances_before, delta, instances
from paired
where instances_before <> planned_before
    or instances <> instances_before + delta
    or instances < 0
