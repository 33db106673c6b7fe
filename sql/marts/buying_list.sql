-- buying_list: for each GPU type and region the GPUs to reserve, to buy on demand and to take from spot, with the regret and the effect of losing the pool.
-- grain: trace, day, served_region, gpu
-- reads: commitments, lost_pools
-- units: GPUs; *_gpu_hours GPU-hours a week, *_usd US dollars a week unless the name says otherwise, *_share 0 to 1
-- served_region = where the instances are, and with them the GPUs
-- need_p50_gpus = GPUs that interactive load needs in at most half of the hours: the median
-- need_p99_gpus = the 99 % quantile of this need
-- need_max_gpus = the maximum of this need
-- saved_share = share saved: of the cost of buying all GPUs on demand
-- regret_usd = cost above the best in hindsight: the best commitment of each week, mean of the weeks
-- lost_more_usd_per_day = what the other regions would buy in addition if this region lost these GPUs
-- lost_short_gpus = GPUs that the other regions have no capacity for
with quantiles as (
    select
        trace, day, served_region, gpu,
        min(reserved_gpus) filter (where exceeded_share <= 0.5) as need_p50_gpus,
        min(reserved_gpus) filter (where exceeded_share <= 0.01) as need_p99_gpus,
        min(reserved_gpus) filter (where exceeded_share = 0) as need_max_gpus,
        max((on_demand_gpu_hours + spot_gpu_hours) * on_demand_usd) filter (where reserved_gpus = 0)
            as all_on_demand_usd
    from commitments
    group by trace, day, served_region, gpu
)

select
    trace, day, served_region, gpu, weeks, need_p50_gpus, need_p99_gpus, need_max_gpus,
    reserved_gpus, on_demand_gpu_hours, spot_gpu_hours, usd_per_week,
    1 - usd_per_week / nullif(all_on_demand_usd, 0) as saved_share,
    regret_usd, worst_regret_usd,
    more_on_demand_gpus as lost_more_on_demand_gpus,
    more_usd_per_day as lost_more_usd_per_day,
    short_gpus as lost_short_gpus
from commitments
inner join quantiles using (trace, day, served_region, gpu)
inner join lost_pools using (trace, day, served_region, gpu)
where is_best
