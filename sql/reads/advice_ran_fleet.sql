-- advice_ran_fleet: instance-hours that ran on one day, as monitoring counted them.
-- grain: gpu, gpus_per_instance
-- reads: ran_fleets
-- units: instance-hours
select gpu, gpus_per_instance, sum(instances)::double as instance_hours
from ran_fleets
where trace = $trace and day = $day
group by all
order by all
