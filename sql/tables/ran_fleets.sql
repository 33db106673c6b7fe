-- ran_fleets: instances that really ran, by hour, from metrics or a file (fleetcast plan ran).
-- grain: trace, day, llm, role, region, gpu, gpus_per_instance, hour_start
-- reads: ran_fleets
-- units: instances (mean of the samples of the hour); instants are UTC
-- trace = whose requests they served
-- day = UTC
-- hour_start timestamptz = first instant of the hour
-- llm varchar = the served network
-- role varchar = what the instances do of each request: whole, prefill or decode
-- region varchar = where they stood
-- gpu varchar = GPU type of an instance
-- gpus_per_instance bigint = GPUs of an instance
-- instances double = ready replicas, mean of the samples
-- samples bigint = how many there were
select * from ran_fleets
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
