-- shadow_runs: what interactive requests met on the fleet that ran and on the one that was advised, both replayed (fleetcast plan grade).
-- grain: trace, day, policy, fleet, tier
-- reads: shadow_runs
-- units: requests; *_s seconds from arrival to the first token
-- trace = name of the trace <- ran_fleets.trace
-- day = UTC <- ran_fleets.day
-- policy = whose advice
-- fleet = ran or advised
-- tier = urgency class <- requests.tier
-- requests = all of them <- requests.request_id
-- in_time = whose first token came within the tier's target
-- ttft_p95_s = within which 95 % had it
-- measured = requests of which the trace tells what they waited; null of the advised fleet <- requests.source_ttft_s
-- measured_in_time = of these, in time where they really ran <- requests.source_ttft_s
-- measured_ttft_p95_s = within which 95 % of them had it there <- requests.source_ttft_s
select * from shadow_runs
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
