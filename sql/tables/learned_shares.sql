-- learned_shares: the capacity share that each policy with learns_capacity_share used on a scored day, what it attained, and the share that follows for the next day (models/plan/learned_share.py).
-- grain: trace, day, policy
-- reads: learned_shares
-- units: *_share 0 to 1 and more: 1 is all of the measured capacity; attained_ratio is a ratio
-- trace = name of the trace
-- day = UTC, the scored day
-- policy varchar = name of the policy
-- capacity_share double = utilisation target of the day, of an instance's measured capacity
-- worst_tier varchar = tier that was furthest below its target, or least above it
-- attained_ratio double = attainment over target: of that tier
-- margin_share double = what the next day should attain above its target, so that one day in twenty misses it
-- next_capacity_share double = utilisation target of the next day
select * from learned_shares
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
