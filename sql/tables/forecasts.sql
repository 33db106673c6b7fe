-- forecasts: what each method expected of the next hour, made every hour from what was known when it began.
-- grain: trace, day, method, llm, region, bucket_start
-- reads: forecasts
-- units: *_per_s interactive input tokens per second, means over the bucket; instants are UTC
-- trace = name of the trace <- demand.trace
-- day = UTC <- demand.day
-- llm = the served network <- demand.llm
-- region = where the requests come from <- demand.region
-- method = how it was forecast: a name of models/forecast
-- cutoff = instant from which on the demand was unknown to it
-- bucket_start = first instant of the bucket <- demand.bucket_start
-- bucket_minutes = length of the bucket
-- input_tokens_per_s = what was expected <- demand.input_tokens
-- actual_input_tokens_per_s = what came <- demand.input_tokens
-- fallback = what forecast instead and why; null where the method itself did
select * from forecasts
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
