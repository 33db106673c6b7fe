-- shadow_runs: what interactive requests met on the fleet that ran and on the one that was advised, both replayed (fleetcast plan grade); a view over trials for one release.
-- grain: trace, day, policy, fleet, tier
-- reads: trials
-- units: requests; *_s seconds from arrival to the first token
-- trace = name of the trace <- trials.trace
-- day = UTC <- trials.day
-- policy = whose advice
-- fleet = ran or advised <- trials.variant
-- tier = urgency class <- trials.tier
-- requests = all of them <- trials.value
-- in_time = whose first token came within the tier's target <- trials.value
-- ttft_p95_s = within which 95 % had it <- trials.value
-- measured = requests of which the trace tells what they waited; null of the advised fleet <- requests.source_ttft_s
-- measured_in_time = of these, in time where they really ran <- requests.source_ttft_s
-- measured_ttft_p95_s = within which 95 % of them had it there <- requests.source_ttft_s
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
