-- What would yesterday's advice have saved, and what would it have missed, against the fleet that ran?
-- grain: trace, day, policy, tier
-- reads: graded_shadow
-- units: *_gpu_hours GPU-hours and *_usd US dollars of the whole day, *_share 0 to 1; below 0 the advice is dearer or misses more
select
    trace, day, policy, tier, saved_gpu_hours, saved_usd, gained_share, replay_error_share, is_beyond_error,
    advised_short_hours, ran_short_hours
from graded_shadow
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
order by trace, day, policy, tier
