-- advice_board: interactive attainment, USD and GPU-hours of each policy on one day.
-- grain: policy
-- reads: scorecard, fleet_by_hour
-- units: share; USD; GPU-hours
with attained as (
    select
        policy,
        attainment_share(
            sum(met) filter (where not may_wait(is_held, tier)),
            sum(requests) filter (where not may_wait(is_held, tier)),
            sum(pending) filter (where not may_wait(is_held, tier))
        ) as in_time_share
    from scorecard
    where trace = $trace and day = $day
    group by policy
),

spent as (
    select policy, sum(usd) as usd, sum(paid_gpu_hours) as gpu_hours
    from fleet_by_hour
    where trace = $trace and day = $day
    group by policy
)

select * from attained inner join spent using (policy)
