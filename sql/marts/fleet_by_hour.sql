-- fleet_by_hour: the fleet's GPUs and cost by policy and hour, compared with what the true demand needed.
-- grain: trace, day, policy, llm, role, served_region, gpu, gpus_per_instance, hour_start
-- reads: fleet_hours, plans
-- units: *_gpu_hours GPU-hours, usd US dollars, *_gpus GPUs (mean over the hour), kv_utilisation_share 0 to 1
-- served_region = where the instances are
-- usd = cost of the instances: serving, booting and draining
-- held_gpus = serving, booting and draining
-- needed_gpus = GPUs that the demand needs: with the buffer of the hour, at the capacity of the clairvoyant plan, in its mix of kinds; not rounded up
with counted as (
    select
        *,
        gpu_hours(paid_s(serving_s, booting_s, draining_s), gpus_per_instance) as paid_gpu_hours
    from fleet_hours
),

needed as (
    select
        trace, day, hour_start, llm, role, served_region, gpu, gpus_per_instance,
        (demand_tokens_per_s + buffer_tokens_per_s) / capacity_tokens_per_s
        * coalesce(
            instances * capacity_tokens_per_s / nullif(sum(instances * capacity_tokens_per_s) over endpoint, 0),
            1 / count(*) over endpoint
        ) as instances
    from plans
    where policy = 'clairvoyant'
    window endpoint as (partition by trace, day, hour_start, llm, role, served_region)
)

select
    trace, day, counted.policy, llm, role, served_region, gpu, gpus_per_instance, hour_start,
    gpu_hours(serving_s, gpus_per_instance) as serving_gpu_hours,
    gpu_hours(booting_s, gpus_per_instance) as booting_gpu_hours,
    gpu_hours(draining_s, gpus_per_instance) as draining_gpu_hours,
    gpu_hours(donated_s, gpus_per_instance) as donated_gpu_hours,
    gpu_hours(booting_s, gpus_per_instance) as wasted_gpu_hours,
    paid_gpu_hours,
    usd(paid_gpu_hours, usd_per_gpu_hour) as usd,
    usd(gpu_hours(booting_s, gpus_per_instance), usd_per_gpu_hour) as boot_usd,
    kv_utilisation_share,
    paid_gpu_hours as held_gpus,
    needed.instances * gpus_per_instance as needed_gpus
from counted
left join needed using (trace, day, hour_start, llm, role, served_region, gpu, gpus_per_instance)
