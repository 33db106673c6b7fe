-- In every window a plan's capacity and flows carry the demand and the buffer, and exports equal imports.
-- grain: trace, day, policy, llm, role, window_start, region
-- reads: plan_windows
-- units: input tokens per second
with carried as (
    select
        trace, day, policy, llm, role, window_start, region,
        demand_tokens_per_s + buffer_tokens_per_s as wanted,
        capacity_tokens_per_s + exports_tokens_per_s - imports_tokens_per_s as served,
        unserved_tokens_per_s + buffer_short_tokens_per_s as short,
        sum(exports_tokens_per_s) over everywhere as exported,
        sum(imports_tokens_per_s) over everywhere as imported
    from plan_windows
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    window everywhere as (partition by trace, day, policy, llm, role, window_start)
)

select * from carried
where served + short < wanted * (1 - 1e-6) - 1e-6
    or abs(exported - imported) > 1e-6 * (exported + 1)
