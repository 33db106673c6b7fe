-- trials: what each trial of an experiment cost and met, a row per figure: what-ifs, forecasts, planners, errors of latencies, studies, graded advice.
-- grain: experiment, trace, day, variant, policy, purpose, resample, draw, knobs, labels, metric, tier, llm
-- reads: trials
-- units: value in the unit that the metric names: *_hours hours, *_s seconds, *_share 0 to 1, *_usd and usd US dollars, requests
-- experiment = the command that made it: whatif, decide, board, error, study, grade (of plan)
-- trace = name of the trace <- outcomes.trace
-- day = UTC; of a study that replays several days the last one <- outcomes.day
-- variant varchar = what differs: a case of data/whatif.toml, a forecast method, a planner, a policy, a variant of a study, the fleet that ran or was advised
-- policy varchar = under which the fleet was scaled <- outcomes.policy
-- purpose varchar = tuned: a knob was still being searched on this day; judged: all knobs were fixed before
-- resample integer = of the day's requests within each hour (models/traffic/day_resample.py); 0 as they came
-- draw integer = of the latencies (models/latency/latency_errors.py); 0 are the profiles as they are
-- knobs map(varchar, double) = figures that were varied: capacity_share is of what an instance sustains within its SLO, that the plan counts on
-- labels map(varchar, varchar) = texts that name it: what is different, its study, whose advice, the ideas that it has, the tier that is compared
-- metric varchar = gpu_hours, instance_hours (their integral: serving, booting and draining), quarter_instance_hours (a quarter of the most instances that served or booted in each quarter of an hour, endpoint by endpoint: as SageServe counts), wasted_gpu_hours and boot_usd (booting), backlog_gpu_hours (what held requests would still take that nobody had taken at the midnight at which a replay ends; no row where there are none), usd, dearest_hour_usd, kv_utilisation_share (mean of the serving instances), missed_share (of interactive requests), quality (mean score), tpot_p95_s (of the tiers with such a target); of a tier requests, attainment_share, ttft_attainment_share, unfinished (not served in the end), ttft_p50_s, ttft_p75_s, ttft_p95_s, e2e_p50_s, e2e_p95_s, matched_share (attainment at which trials are compared); of the board required_ratio and required_quality (what is asked), of a tier attained_ratio (attainment over its target), usd_error_share, and the parts of regret; of requests that were measured where the trace was taken measured, measured_in_time, measured_ttft_p95_s; of a plan short_hours, remote_share, buffer_short_share, below_minimum_hours (sql/marts/whatifs.sql)
-- tier varchar = urgency class; all for what is not told by tier <- outcomes.tier
-- llm varchar = the served network; all; or, of attainment_share, worst: of the llm that has least <- outcomes.llm
-- value double = over all replayed days
select * from trials
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
