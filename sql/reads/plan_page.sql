-- plan_page: planned capacity, expected and true demand of each llm by window of the day.
-- grain: llm, window_start
-- reads: plan_windows
-- units: tokens per second
with services as (
    select
        llm, role, window_start,
        sum(capacity_tokens_per_s) filter (policy = $policy) as planned_tokens_per_s,
        sum(demand_tokens_per_s + buffer_tokens_per_s) filter (policy = $policy) as expected_tokens_per_s,
        sum(demand_tokens_per_s + buffer_tokens_per_s) filter (policy = 'clairvoyant') as actual_tokens_per_s
    from plan_windows
    where trace = $trace and day = $day
    group by llm, role, window_start
)

select
    llm, window_start,
    min(planned_tokens_per_s) as planned_tokens_per_s,  -- prefill and decode serve the same requests
    max(expected_tokens_per_s) as expected_tokens_per_s,
    max(actual_tokens_per_s) as actual_tokens_per_s
from services
group by llm, window_start
order by llm, window_start
