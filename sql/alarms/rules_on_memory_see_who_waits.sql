-- No endpoint scaled by its memory utilisation while that was low and most of an hour's interactive requests were late.
-- grain: trace, day, policy, llm, region
-- reads: scorecard, fleet_hours
-- units: hours of the day; kv_utilisation_share 0 to 1, the largest of these hours; missed_share of their requests
-- Memory utilisation measures the load if memory is the bottleneck (SageServe 4). If not (an llm on more GPUs than its
-- cache needs, short prompts), the rule sees spare instances while requests wait: set the policy's signal = "both".
with late as (
    select
        trace, day, policy, llm, region, hour_start,
        sum(requests) as requests,
        sum(missed) as missed
    from scorecard
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
        and list_contains($by_memory, policy) and not is_held
    group by trace, day, policy, llm, region, hour_start
    having sum(requests) >= 20 and sum(missed) > sum(requests) / 2
),

used as (
    select
        trace, day, policy, llm, served_region as region, hour_start,
        sum(kv_utilisation_share * serving_s) / sum(serving_s) as kv_utilisation_share
    from fleet_hours
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day) and serving_s > 0
    group by trace, day, policy, llm, served_region, hour_start
)

-- The requests of a region are compared with its own instances, which serve most of them.

select
    trace, day, policy, llm, region,
    count(*) as hours,
    max(kv_utilisation_share) as kv_utilisation_share,
    sum(missed) / sum(requests) as missed_share
from late
inner join used using (trace, day, policy, llm, region, hour_start)
where kv_utilisation_share < $scale_in_share
group by trace, day, policy, llm, region
