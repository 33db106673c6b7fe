-- What would yesterday's plan have saved compared with the fleet that ran, and what would the tier with the smallest gain have missed?
-- grain: trace, day, policy
-- reads: graded_days, graded_shadow
-- units: *_gpu_hours GPU-hours and *_usd US dollars of the covered hours, covered_hours hours, *_share 0 to 1; below 0 the plan is more expensive or misses more
with least as (
    select trace, day, policy, tier, gained_share, replay_error_share, is_beyond_error
    from graded_shadow
    qualify row_number() over (partition by trace, day, policy order by gained_share, tier) = 1
)

select
    trace, day, policy, covered_hours, saved_gpu_hours, saved_usd, advised_short_hours, ran_short_hours,
    tier as least_gained_tier, gained_share, replay_error_share, is_beyond_error
from graded_days
left join least using (trace, day, policy)
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
order by trace, day, policy
