-- graded_decisions: each planned decision compared with the fleet that ran in that hour and with the need of the true demand, in the hours in which any workload has a sample.
-- grain: trace, day, policy, llm, role, served_region, gpu, gpus_per_instance, hour_start
-- reads: advice, ran_fleets, plans
-- units: *_instances instances (mean of the hour), *_gpu_hours GPU-hours, *_usd US dollars; below 0 the plan is more expensive
-- served_region = where the instances are
-- ran_instances = ready replicas that ran; 0 without a sample in an hour in which another workload has one
-- needed_instances = instances of the clairvoyant plan for the true demand
-- verdict = result of the check or comparison: saved: fewer and enough; short: fewer and too few; covered: more, where the fleet that ran was too small; spent: more, where it was enough; same
with needed as (
    select
        trace, day, hour_start, llm, role, served_region, gpu, gpus_per_instance,
        instances as needed_instances
    from plans
    where policy = 'clairvoyant'
),

covered as (
    select distinct trace, day, hour_start
    from ran_fleets
    semi join needed using (trace, day, hour_start)
),

compared as (
    select
        trace, day, advice.policy, hour_start, llm, role, served_region, gpu, gpus_per_instance,
        decision_id,
        advice.instances as advised_instances,
        coalesce(ran_fleets.instances, 0) as ran_instances,
        coalesce(needed_instances, 0) as needed_instances,
        advice.usd / nullif(advice.instances, 0) as instance_usd
    from advice
    semi join covered using (trace, day, hour_start)
    left join ran_fleets
        using (trace, day, hour_start, llm, role, served_region, gpu, gpus_per_instance)
    left join needed using (trace, day, hour_start, llm, role, served_region, gpu, gpus_per_instance)
),

priced as (
    select
        * exclude (instance_usd),
        (ran_instances - advised_instances) * gpus_per_instance as saved_gpu_hours,
        (ran_instances - advised_instances)
        * coalesce(instance_usd, max(instance_usd) over (partition by trace, gpu, gpus_per_instance)) as saved_usd
    from compared
)

select
    *,
    case
        when advised_instances < ran_instances and advised_instances >= needed_instances then 'saved'
        when advised_instances < ran_instances then 'short'
        when advised_instances > ran_instances and ran_instances < needed_instances then 'covered'
        when advised_instances > ran_instances then 'spent'
        else 'same'
    end as verdict
from priced
