-- shadow_runs: attainment of interactive requests on the fleet that ran and on the planned fleet, both replayed (fleetcast plan grade); a view over trials for one release.
-- grain: trace, day, policy, fleet, tier
-- reads: trials
-- units: requests; *_s seconds from arrival to the first token
-- trace = name of the trace <- trials.trace
-- day = UTC <- trials.day
-- policy = the scaling policy of the plan
-- fleet = the fleet: ran, or advised, the planned one <- trials.variant
-- tier = urgency class <- trials.tier
-- requests = number of requests: of the hours that the plan has and in which any workload has a sample of what ran <- trials.value
-- in_time = requests with TTFT within the tier's target <- trials.value
-- ttft_p95_s = time to first token, 95th percentile <- trials.value
-- measured = requests with a measured TTFT in the trace; null for the planned fleet <- requests.source_ttft_s
-- measured_in_time = of these, requests with the measured TTFT within the target <- requests.source_ttft_s
-- measured_ttft_p95_s = measured time to first token, 95th percentile <- requests.source_ttft_s
select
    trace, day, labels['advice'] as policy, variant as fleet, tier,
    max(value) filter (where metric = 'requests')::bigint           as requests,
    round(
        max(value) filter (where metric = 'ttft_attainment_share') * max(value) filter (where metric = 'requests')
    )::bigint                                                       as in_time,
    max(value) filter (where metric = 'ttft_p95_s')                 as ttft_p95_s,
    max(value) filter (where metric = 'measured')::bigint           as measured,
    max(value) filter (where metric = 'measured_in_time')::bigint   as measured_in_time,
    max(value) filter (where metric = 'measured_ttft_p95_s')        as measured_ttft_p95_s
from trials
where experiment = 'grade' and llm = 'all' and tier <> 'all'
group by trace, day, labels['advice'], variant, tier
having count_if(metric = 'ttft_attainment_share') > 0
