-- lost_pools: what the others lack when a region loses its GPUs of a type, on the day of the largest need (fleetcast plan buy).
-- grain: trace, day, region, gpu
-- reads: lost_pools
-- units: GPUs; US dollars of that day
-- trace = name of the trace <- demand.trace
-- day = the last day of the weeks <- demand.day
-- region varchar = that is lost
-- gpu varchar = GPU type of the node pool that is lost
-- needed_gpus double = of this type in all regions together, the largest hour of that day <- demand.input_tokens
-- reserved_elsewhere_gpus bigint = that the list reserves in the others
-- more_on_demand_gpus double = that the others would have to buy on demand on top, the largest hour
-- more_usd_per_day double = what that costs
-- room_elsewhere_gpus bigint = that the others may have (cap_gpus of the catalogue)
-- short_gpus double = that are needed and that there is no room for: above 0 the loss cannot be carried
select * from lost_pools
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
