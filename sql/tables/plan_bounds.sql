-- plan_bounds: lower bounds on the cost of any fleet for the true demand of an hour (models/plan/cost_bounds.py).
-- grain: trace, day, hour_start
-- reads: plan_bounds
-- units: US dollars of the hour; instants are UTC
-- trace = name of the trace <- demand.trace
-- day = UTC <- demand.day
-- hour_start timestamptz = first instant of the hour <- demand.bucket_start
-- fluid_usd double = lower bound on the cost of any fleet: fractional instances that move at once (models/plan/cost_bounds.py), between windows and regions <- demand.input_tokens
-- whole_usd double = bound with whole instances <- demand.input_tokens
-- with_minimum_usd double = the same, with the configured minimum of each llm <- demand.input_tokens
-- whole_hours_usd double = the same, with instances held for the whole hour <- demand.input_tokens
select * from plan_bounds
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
