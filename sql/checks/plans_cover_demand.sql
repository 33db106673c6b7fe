-- Every hour of the paper's plans serves an llm's demand and buffer in all regions together, or reports the shortage.
-- grain: trace, day, policy, llm, role, hour_start
-- reads: plans
-- units: input tokens per second
with regions as (
    select
        trace, day, policy, llm, role, served_region, hour_start,
        any_value(demand_tokens_per_s + buffer_tokens_per_s) as wanted,
        sum(instances * capacity_tokens_per_s) as served,
        max(short_llm_tokens_per_s) as short
    from plans
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
        and programme = 'paper'  -- the corrected plans are checked window by window
        and policy <> 'static'  -- its rows have the largest hour of each region, not the same hour in all
    group by trace, day, policy, llm, role, served_region, hour_start
),

summed as (
    select
        trace, day, policy, llm, role, hour_start,
        sum(wanted) as wanted, sum(served) as served, max(short) as short
    from regions
    group by trace, day, policy, llm, role, hour_start
)

select * from summed
where served + short < wanted * (1 - 1e-6)
