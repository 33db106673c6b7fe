-- learned_shares: the capacity share that each policy with learns_capacity_share used on a scored day, what it attained, and the share that follows for the next day (models/plan/learned_share.py).
-- grain: trace, day, policy
-- reads: learned_shares
-- units: *_share 0 to 1 and more, 1 is all of the measured capacity; *_ratio 1 at the target
-- trace = name of the trace
-- day = UTC, the scored day
-- policy varchar = the scaling policy
-- capacity_share double = share of an instance's capacity within its SLO that the plan uses: on this day
-- worst_tier varchar = the tier with the least attainment over its target
-- attained_ratio double = least attainment over target of all tiers; all targets are met from 1
-- margin_share double = what the next day should attain above its target, so that one day in twenty misses it
-- next_capacity_share double = utilisation target of the next day
select * from learned_shares
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
