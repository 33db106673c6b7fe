-- graded_days: cost and saving of a day's plan compared with the fleet that ran, and how often each of them was too small.
-- grain: trace, day, policy
-- reads: graded_decisions
-- units: *_gpu_hours GPU-hours and *_usd US dollars of the covered hours, *_short_hours hours of workloads, covered_hours hours
-- covered_hours = hours of the day that the plan has and in which any workload has a sample of what ran; all other columns are of these hours
-- advised_short_hours = hours in which the plan had fewer instances than the true demand needed; an hour counts once for each workload
-- ran_short_hours = hours in which fewer instances ran than the true demand needed; likewise
select
    trace, day, policy,
    count(distinct hour_start)::bigint as covered_hours,
    sum(ran_instances * gpus_per_instance) as ran_gpu_hours,
    sum(advised_instances * gpus_per_instance)::double as advised_gpu_hours,
    sum(saved_gpu_hours) as saved_gpu_hours,
    sum(saved_usd) as saved_usd,
    count_if(advised_instances < needed_instances)::bigint as advised_short_hours,
    count_if(ran_instances < needed_instances)::bigint as ran_short_hours
from graded_decisions
group by trace, day, policy
