-- trials: cost and attainment of each trial of an experiment, a row per metric: what-ifs, forecasts, planners, latency errors, studies, graded plans and advice.
-- grain: experiment, trace, day, variant, policy, purpose, resample, draw, knobs, labels, metric, tier, llm
-- reads: trials
-- units: value in the unit that the metric names: *_hours hours, *_s seconds, *_share 0 to 1, *_usd and usd US dollars, requests
-- experiment = the command: whatif, decide, board, error, study, grade (of plan), advice (graded)
-- trace = name of the trace <- outcomes.trace
-- day = UTC; the last day if a study replays several days <- outcomes.day
-- variant varchar = what is varied: a case of data/whatif.toml, a forecast method, a planner, a policy, a variant of a study, the fleet that ran or was advised
-- policy varchar = the scaling policy <- outcomes.policy
-- purpose varchar = tuned: a knob was searched on this day; judged: all knobs were fixed before
-- resample integer = number of the resample of the day's requests within each hour (models/traffic/day_resample.py); 0: the real requests
-- draw integer = number of the sample of latency errors (models/latency/latency_errors.py); 0: the profiles without error
-- knobs map(varchar, double) = numeric settings: capacity_share is the share of an instance's capacity within its SLO that the plan uses
-- labels map(varchar, varchar) = text settings: what is varied, the study, the policy of the advice, the ideas, the tier that is compared
-- metric varchar = name of the metric: gpu_hours, instance_hours (time integral: serving, booting and draining), quarter_instance_hours (a quarter of the maximum of serving and booting instances in each quarter of an hour, by endpoint, as SageServe counts), wasted_gpu_hours and boot_usd (booting), backlog_gpu_hours (GPU-hours that the deferred requests which no instance had at the midnight at the end of the replay would still need; no row without any), usd, dearest_hour_usd, kv_utilisation_share (mean of the serving instances), missed_share (of interactive requests), quality (mean score), tpot_p95_s (of the tiers with a TPOT target); by tier requests, attainment_share, ttft_attainment_share, unfinished (not served at the end), ttft_p50_s, ttft_p75_s, ttft_p95_s, e2e_p50_s, e2e_p95_s, matched_share (attainment at which trials are compared); for the experiment board required_ratio and required_quality (requirements), by tier attained_ratio (attainment over its target), usd_error_share, and the parts of regret; for unseen days known_minutes_usd, hold_s (the longest hold of compact); for requests with measured latencies measured, measured_in_time, measured_ttft_p95_s; for a plan short_hours, remote_share, buffer_short_share, below_minimum_hours (sql/marts/whatifs.sql)
-- tier varchar = urgency class; all for metrics without a tier <- outcomes.tier
-- llm varchar = the served network; all; or, for attainment_share, worst: the llm with the lowest attainment <- outcomes.llm
-- value double = value of the figure or metric over all replayed days
select * from trials
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
