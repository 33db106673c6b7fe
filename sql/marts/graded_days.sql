-- graded_days: what a day's advice would have cost and saved against the fleet that ran, and how often either was too small.
-- grain: trace, day, policy
-- reads: graded_decisions
-- units: *_gpu_hours GPU-hours and *_usd US dollars of the whole day, *_hours hours of endpoints
-- saved_gpu_hours = those that ran less those advised; below 0 the advice is dearer
-- advised_short_hours = in which fewer instances were advised than the true demand needed
-- ran_short_hours = in which fewer ran than it needed
select
    trace, day, policy,
    sum(ran_instances * gpus_per_instance) as ran_gpu_hours,
    sum(advised_instances * gpus_per_instance)::double as advised_gpu_hours,
    sum(saved_gpu_hours) as saved_gpu_hours,
    sum(saved_usd) as saved_usd,
    count_if(advised_instances < needed_instances)::bigint as advised_short_hours,
    count_if(ran_instances < needed_instances)::bigint as ran_short_hours
from graded_decisions
group by trace, day, policy
