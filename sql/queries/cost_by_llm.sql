-- Where does the money go? GPU-hours and dollars of each llm by the state of its instances.
-- grain: trace, day, policy, llm
-- reads: fleet_by_hour
-- units: *_gpu_hours GPU-hours, usd US dollars

select
    trace, day, policy, llm,
    sum(serving_gpu_hours) as serving_gpu_hours,
    sum(booting_gpu_hours) as booting_gpu_hours,
    sum(draining_gpu_hours) as draining_gpu_hours,
    sum(donated_gpu_hours) as donated_gpu_hours,
    sum(usd) as usd
from fleet_by_hour
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
group by trace, day, policy, llm
order by trace, day, policy, usd desc
