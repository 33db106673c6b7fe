-- lateness: how many requests of an hour were late, and how late, by policy, llm and tier.
-- grain: trace, day, policy, llm, tier, hour_start
-- reads: outcomes
-- units: *_share 0 to 1; *_ratio of a request's value to its target (sql/macros/slo.sql), the target that it missed most
-- llm = the served network, as requested
-- hour_start = first instant of the hour of arrival, UTC
-- requests = number of requests, without those that still waited at the end before their deadline
-- late = those that missed a target
-- unserved = part of them that was never served
-- late_share = late over requests
-- late_p50_ratio, late_p95_ratio, late_max_ratio = of the late requests that were served: 2 is twice the target
with judged as (
    select
        trace, day, policy, llm, tier, date_trunc('hour', arrived_at) as hour_start,
        target_ratio(ttft_s, tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, deadline_s) as ratio
    from outcomes
    where not is_pending(queued_s, ttft_slo_s, deadline_s)
),

counted as (
    select
        trace, day, policy, llm, tier, hour_start,
        count(*) as requests,
        count_if(ratio > 1)::bigint as late,
        count_if(isinf(ratio))::bigint as unserved,
        quantile_cont(ratio, [0.50, 0.95]) filter (where ratio > 1 and not isinf(ratio)) as late_ratios,
        max(ratio) filter (where ratio > 1 and not isinf(ratio)) as late_max_ratio
    from judged
    group by all
)

select
    trace, day, policy, llm, tier, hour_start, requests, late, unserved,
    late / requests as late_share,
    late_ratios[1] as late_p50_ratio,
    late_ratios[2] as late_p95_ratio,
    late_max_ratio
from counted
