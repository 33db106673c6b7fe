-- Over all replayed days: what did each policy spend, and how often was the strictest tier served in time?
-- grain: trace, policy
-- reads: scoreboard, tier_attainment
-- units: replayed_days days, gpu_hours GPU-hours, usd US dollars, *_share 0 to 1
-- attainment_share = attainment of the strictest tier over the requests of all days, so a busy day counts more than a quiet one
-- backlog_gpu_hours = GPU-hours that the requests not served at the midnights would still need, as in scoreboard
-- worst_llm_attainment_share = attainment of the worst llm on the worst day
-- worst_day_attainment_share = attainment on the worst day
with spent as (
    select
        trace, policy,
        count(*) as replayed_days,
        sum(gpu_hours) as gpu_hours,
        sum(backlog_gpu_hours) as backlog_gpu_hours,
        sum(usd) as usd,
        min(worst_llm_attainment_share) as worst_llm_attainment_share,
        min(attainment_share) as worst_day_attainment_share
    from scoreboard
    group by trace, policy
),

attained as (
    select trace, policy, attainment_share(sum(met), sum(requests), sum(pending)) as attainment_share
    from tier_attainment
    where is_strictest
    group by trace, policy
)

select
    trace, policy, replayed_days, gpu_hours, backlog_gpu_hours, usd,
    attainment_share, worst_llm_attainment_share, worst_day_attainment_share
from spent
left join attained using (trace, policy)
order by trace, usd
