-- scorecard: what the requests met, per policy, llm, region, tier and hour of arrival, of one day.
-- grain: policy, llm, region, tier, hour_start
-- reads: outcomes
-- units: *_s seconds from arrival, percentiles over the requests that got that far; *_share 0 to 1
-- policy = under which the fleet was scaled <- outcomes.policy
-- llm = the served network <- outcomes.llm
-- region = where the request came from, not where it was served <- outcomes.region
-- tier = urgency class: iw_fast, iw_normal, niw <- outcomes.tier
-- hour_start = first instant of the hour of arrival, UTC <- outcomes.arrived_at
-- requests = all of them <- outcomes.request_id
-- met = requests within their SLO (sql/macros/slo.sql) <- outcomes.ttft_s, outcomes.e2e_s, outcomes.deadline_s
-- pending = non-interactive requests that still waited at the end with their deadline ahead <- outcomes.queued_s
-- missed = all the others
-- served_elsewhere = requests served in another region than their own <- outcomes.served_region
-- preemptions = how often their memory was taken and they began anew <- outcomes.preemptions
-- attainment_share = met in met + missed; null when none is decided
-- ttft_p50_s = to the first token, median <- outcomes.ttft_s
-- ttft_p90_s = to the first token, 90th percentile <- outcomes.ttft_s
-- ttft_p95_s = to the first token, 95th percentile <- outcomes.ttft_s
-- ttft_p99_s = to the first token, 99th percentile <- outcomes.ttft_s
-- e2e_p50_s = to the last token, median <- outcomes.e2e_s
-- e2e_p90_s = to the last token, 90th percentile <- outcomes.e2e_s
-- e2e_p95_s = to the last token, 95th percentile <- outcomes.e2e_s
-- e2e_p99_s = to the last token, 99th percentile <- outcomes.e2e_s
with judged as (
    select
        *,
        date_trunc('hour', arrived_at) as hour_start,
        is_met(ttft_s, e2e_s, ttft_slo_s, deadline_s) as is_met,
        is_pending(queued_s, ttft_slo_s, deadline_s) as is_pending
    from outcomes
    where trace = $trace and day = $day::date and policy = coalesce($policy, policy)
),

counted as (
    select
        policy, llm, region, tier, hour_start,
        count(*) as requests,
        count_if(is_met) as met,
        count_if(is_pending) as pending,
        count_if(served_region <> region) as served_elsewhere,
        sum(preemptions)::bigint as preemptions,
        percentiles(ttft_s) as ttft,
        percentiles(e2e_s) as e2e
    from judged
    group by policy, llm, region, tier, hour_start
),

named as (
    select
        policy, llm, region, tier, hour_start,
        requests, met, pending,
        requests - met - pending as missed,
        served_elsewhere, preemptions,
        attainment_share(met, requests, pending) as attainment_share,
        ttft[1] as ttft_p50_s, ttft[2] as ttft_p90_s, ttft[3] as ttft_p95_s, ttft[4] as ttft_p99_s,
        e2e[1] as e2e_p50_s, e2e[2] as e2e_p90_s, e2e[3] as e2e_p95_s, e2e[4] as e2e_p99_s
    from counted
)

select * from named
