-- scorecard: SLO attainment and latencies by policy, llm, region, tier and hour of arrival, of one day.
-- grain: policy, llm, region, tier, hour_start
-- reads: outcomes
-- units: *_s seconds from arrival, those of TTFT and E2E over the decided requests: null where one falls on a request that was never served; *_share 0 to 1
-- policy = the scaling policy <- outcomes.policy
-- llm = the served network <- outcomes.llm
-- region = where the requests come from, not where they were served <- outcomes.region
-- tier = urgency class <- outcomes.tier
-- is_held = whether the queue manager may defer the tier's requests; the other tiers are interactive <- outcomes.is_held
-- hour_start = first instant of the hour of arrival, UTC <- outcomes.arrived_at
-- requests = number of requests <- outcomes.request_id
-- met = requests within all their targets (sql/macros/slo.sql) <- outcomes.ttft_s, outcomes.tpot_s, outcomes.e2e_s, outcomes.deadline_s
-- ttft_met = requests with TTFT within its target, whatever their TPOT; null where the tier has no such target <- outcomes.ttft_s
-- tpot_met = requests with TPOT within its target, whatever their TTFT; null where the tier has no such target <- outcomes.tpot_s
-- pending = requests without a TTFT target that were still queued at the end, before their deadline <- outcomes.queued_s
-- served_elsewhere = requests that another region served <- outcomes.served_region
-- preemptions = number of preemptions: requests lost their memory and started again <- outcomes.preemptions
-- attainment_share = share of requests that met all their targets (sql/macros/slo.sql); null if no request is decided
-- ttft_attainment_share = share of requests with TTFT within its target; null without such a target <- outcomes.ttft_s
-- tpot_attainment_share = share of requests with TPOT within its target; null without such a target <- outcomes.tpot_s
-- ttft_p50_s = time to first token, median <- outcomes.ttft_s
-- ttft_p90_s = time to first token, 90th percentile <- outcomes.ttft_s
-- ttft_p95_s = time to first token, 95th percentile <- outcomes.ttft_s
-- ttft_p99_s = time to first token, 99th percentile <- outcomes.ttft_s
-- tpot_p50_s = time per output token after the first, median <- outcomes.tpot_s
-- tpot_p90_s = time per output token after the first, 90th percentile <- outcomes.tpot_s
-- tpot_p95_s = time per output token after the first, 95th percentile <- outcomes.tpot_s
-- tpot_p99_s = time per output token after the first, 99th percentile <- outcomes.tpot_s
-- e2e_p50_s = time to the last token, median <- outcomes.e2e_s
-- e2e_p90_s = time to the last token, 90th percentile <- outcomes.e2e_s
-- e2e_p95_s = time to the last token, 95th percentile <- outcomes.e2e_s
-- e2e_p99_s = time to the last token, 99th percentile <- outcomes.e2e_s
with judged as (
    select
        * replace (may_wait(is_held, tier) as is_held),
        date_trunc('hour', arrived_at) as hour_start,
        is_met(ttft_s, tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, deadline_s) as is_met,
        is_pending(queued_s, ttft_slo_s, deadline_s) as is_pending
    from outcomes
    where
        trace = $trace and day = $day::date and policy = coalesce($policy, policy)
        and arrived_at >= coalesce($begin::timestamptz, '-infinity')
        and arrived_at < coalesce($end::timestamptz, 'infinity')
),

counted as (
    select
        policy, llm, region, tier, is_held, hour_start,
        count(*) as requests,
        count_if(is_met) as met,
        if(count(ttft_slo_s) > 0, count_if(is_ttft_met(ttft_s, ttft_slo_s)), null)::bigint as ttft_met,
        if(count(tpot_slo_s) > 0, count_if(is_tpot_met(tpot_s, e2e_s, tpot_slo_s)), null)::bigint as tpot_met,
        count_if(is_pending) as pending,
        count_if(served_region <> region) as served_elsewhere,
        sum(preemptions)::bigint as preemptions,
        percentiles(ranked_s(ttft_s, queued_s, ttft_slo_s, deadline_s)) as ttft,
        percentiles(tpot_s) as tpot,
        percentiles(ranked_s(e2e_s, queued_s, ttft_slo_s, deadline_s)) as e2e
    from judged
    group by policy, llm, region, tier, is_held, hour_start
)

select
    policy, llm, region, tier, is_held, hour_start,
    requests, met, ttft_met, tpot_met, pending,
    requests - met - pending as missed,
    served_elsewhere, preemptions,
    attainment_share(met, requests, pending) as attainment_share,
    attainment_share(ttft_met, requests, pending) as ttft_attainment_share,
    attainment_share(tpot_met, requests, pending) as tpot_attainment_share,
    ttft[1] as ttft_p50_s, ttft[2] as ttft_p90_s, ttft[3] as ttft_p95_s, ttft[4] as ttft_p99_s,
    tpot[1] as tpot_p50_s, tpot[2] as tpot_p90_s, tpot[3] as tpot_p95_s, tpot[4] as tpot_p99_s,
    e2e[1] as e2e_p50_s, e2e[2] as e2e_p90_s, e2e[3] as e2e_p95_s, e2e[4] as e2e_p99_s
from counted
