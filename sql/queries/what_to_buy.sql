-- How many GPUs should be reserved, bought on demand and taken from spot, and what does this save?
-- grain: trace, day, served_region, gpu
-- reads: buying_list
-- units: GPUs; *_gpu_hours GPU-hours a week, *_usd US dollars a week, saved_share 0 to 1
select
    trace, day, served_region, gpu, reserved_gpus, on_demand_gpu_hours, spot_gpu_hours, usd_per_week, saved_share,
    worst_regret_usd, lost_short_gpus
from buying_list
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
order by trace, day, usd_per_week desc, served_region, gpu
