-- Where was the fleet too small for the load of a plan, and by how much? The worst hour of every policy's plan.
-- grain: trace, day, policy
-- reads: all_plans
-- no rows: No plan is short of capacity.
-- units: *_tokens_per_s input tokens/s, missing_instances instances of the kind with the highest capacity, short_hours hours
-- Less than a hundredth of an instance is no shortage: a plan serves it in another region, as an instance would cost more.
with short as (
    select
        trace, day, policy, hour_start, llm, role, served_region,
        max(capacity_tokens_per_s) as capacity_tokens_per_s,
        any_value(short_tokens_per_s) as short_tokens_per_s
    from all_plans
    where short_tokens_per_s > 0.01 * capacity_tokens_per_s
    group by trace, day, policy, hour_start, llm, role, served_region
    union all
    select
        trace, day, policy, hour_start, llm, role, 'all regions' as served_region,
        max(capacity_tokens_per_s) as capacity_tokens_per_s,
        any_value(short_llm_tokens_per_s) as short_tokens_per_s
    from all_plans
    where short_llm_tokens_per_s > 0.01 * capacity_tokens_per_s
    group by trace, day, policy, hour_start, llm, role
),

counted as (
    select
        *,
        ceil(short_tokens_per_s / capacity_tokens_per_s)::bigint as missing_instances,
        count(distinct hour_start) over (partition by trace, day, policy) as short_hours
    from short
),

worst as (
    select *
    from counted
    qualify row_number() over (
        partition by trace, day, policy order by missing_instances desc, hour_start, llm, role, served_region
    ) = 1
)

select * from worst
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
order by trace, day, policy
