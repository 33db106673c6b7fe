-- plan_bounds: the least that any fleet costs for the true demand of an hour (models/plan/cost_bounds.py).
-- grain: trace, day, hour_start
-- reads: plan_bounds
-- units: US dollars of the hour; instants are UTC
-- trace = name of the trace <- demand.trace
-- day = UTC <- demand.day
-- hour_start timestamptz = first instant of the hour <- demand.bucket_start
-- fluid_usd double = instances divided at will, moved at once between windows and regions <- demand.input_tokens
-- whole_usd double = the same with whole instances <- demand.input_tokens
-- minimum_usd double = and of each llm at least the configured minimum <- demand.input_tokens
-- hour_usd double = the same, held for the whole hour <- demand.input_tokens
select * from plan_bounds
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
