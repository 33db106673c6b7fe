-- lost_pools: what the other regions would need if a region lost its GPUs of a type, on the day of the largest demand (fleetcast plan buy).
-- grain: trace, day, served_region, gpu
-- reads: lost_pools
-- units: GPUs; US dollars of that day
-- trace = name of the trace <- demand.trace
-- day = UTC, the last day of the weeks <- demand.day
-- served_region varchar = where the instances are: those that lose the pool
-- gpu varchar = the GPU type; with the name of its engine, if it has one: h100-80gb:fp8; of the lost pool
-- needed_gpus double = GPUs that the demand needs: of this type, in all regions together in the largest hour of that day <- demand.input_tokens
-- reserved_elsewhere_gpus bigint = GPUs that the buying list reserves in the other regions
-- more_on_demand_gpus double = GPUs that the other regions would buy on demand in addition in the largest hour
-- more_usd_per_day double = the cost of these GPUs
-- room_elsewhere_gpus bigint = GPUs that the other regions may have (cap_gpus of the catalogue)
-- short_gpus double = GPUs that are needed above that limit: above 0 the loss cannot be covered
select * from lost_pools
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
