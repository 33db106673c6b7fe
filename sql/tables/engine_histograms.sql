-- engine_histograms: token lengths and latencies as the engines counted them, by endpoint and hour, of a trace from metrics.
-- grain: trace, hour_start, engine, source_llm, region, tier, app, measure, at_most
-- reads: engine_histograms
-- units: at_most in tokens or seconds, as measure says; instants are UTC
-- trace = name of the trace
-- hour_start timestamptz = first instant of the hour
-- engine varchar = who counted: a table of data/catalogue/metrics.toml
-- source_llm varchar = what the engine calls it
-- llm varchar = the served network
-- region varchar = where it was counted, null where no label tells; tier and app likewise
-- tier varchar = urgency class
-- app varchar = the application
-- measure varchar = input_tokens, output_tokens, ttft_s, tpot_s
-- at_most double = upper bound of the bucket; its lower one is the upper one of the bucket below
-- samples bigint = how many lay in the bucket
select * from engine_histograms
where trace = coalesce($trace, trace)
