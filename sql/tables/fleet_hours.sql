-- fleet_hours: what the instances of an endpoint did in an hour under a policy.
-- grain: trace, day, policy, llm, region, gpu, hour_start
-- reads: fleet_hours
-- units: *_s instance-seconds; kv_utilisation_share 0 to 1; instants are UTC
-- trace = name of the trace <- requests.trace
-- day = UTC <- requests.day
-- policy = under which the fleet was scaled
-- hour_start = first instant of the hour
-- llm = the served network
-- region = where the instances stand
-- gpu = GPU type of an instance
-- gpus_per_instance = GPUs of an instance
-- serving_s = serving, or ready to
-- booting_s = on their way: paid for and serving nobody
-- draining_s = finishing what they have before they go
-- donated_s = lent out as spot instances
-- kv_utilisation_share = mean share of the KV memory in use
-- usd_per_gpu_hour = price of the GPU
select * from fleet_hours
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
