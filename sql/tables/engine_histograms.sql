-- engine_histograms: token counts and latencies by endpoint and hour from the engines' metrics, for traces from metrics.
-- grain: trace, hour_start, engine, source_llm, served_region, tier, app, measure, at_most
-- reads: engine_histograms
-- units: at_most in tokens or seconds, by measure; instants are UTC
-- trace = name of the trace
-- hour_start timestamptz = first instant of the hour
-- engine varchar = the engine: a table of data/catalogue/metrics.toml
-- source_llm varchar = the source's name of the llm: the engine's
-- llm varchar = the served network
-- served_region varchar = where the instances are; null where no label has it, the same for tier and app
-- tier varchar = urgency class
-- app varchar = the application
-- measure varchar = the measured quantity: input_tokens, output_tokens, ttft_s, tpot_s or e2e_s
-- at_most double = upper bound of the bucket; its lower bound is the upper bound of the bucket below
-- samples bigint = number of samples in the bucket
select * from engine_histograms
where trace = coalesce($trace, trace)
