-- ran_fleets: instances that really ran, by hour, from metrics or from a file (fleetcast plan ran).
-- grain: trace, day, llm, role, served_region, gpu, gpus_per_instance, hour_start
-- reads: ran_fleets
-- units: instances (mean of the samples of the hour); instants are UTC
-- trace = name of the trace: that of the requests that they served
-- day = UTC
-- hour_start timestamptz = first instant of the hour
-- llm varchar = the served network
-- role varchar = phase of the instances: whole, prefill or decode
-- served_region varchar = where the instances are
-- gpu varchar = the GPU type; with the name of its engine, if it has one: h100-80gb:fp8
-- gpus_per_instance bigint = GPUs of one instance
-- instances double = number of instances: ready replicas, mean of the samples
-- samples bigint = number of samples
select * from ran_fleets
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
