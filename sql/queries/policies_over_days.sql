-- Over all days that were replayed: what did each policy spend, and how often was iw_fast served in time?
-- grain: trace, policy
-- reads: scoreboard
-- units: replayed_days days, gpu_hours GPU-hours, usd US dollars, *_share 0 to 1
with summed as (
    select
        trace, policy,
        count(*) as replayed_days,
        sum(gpu_hours) as gpu_hours,
        sum(usd) as usd,
        avg(iw_fast_attainment_share) as iw_fast_attainment_share,
        min(iw_fast_attainment_share) as worst_day_iw_fast_attainment_share
    from scoreboard
    group by trace, policy
)

select * from summed
order by trace, usd
