-- engine_histograms: token lengths and latencies as the engines counted them, by endpoint and hour, of a trace from metrics.
-- grain: trace, hour_start, engine, source_llm, region, tier, app, measure, at_most
-- reads: engine_histograms
-- units: tokens; *_s seconds; instants are UTC
-- trace = name of the trace
-- hour_start = first instant of the hour
-- engine = who counted: a table of data/catalogue/metrics.toml
-- llm = the served network
-- source_llm = what the engine calls it
-- region = where it was counted, null where no label tells; tier and app likewise
-- tier = urgency class
-- app = the application
-- measure = input_tokens, output_tokens, ttft_s, tpot_s
-- at_most = upper bound of the bucket; its lower one is the upper one of the bucket below
-- samples = how many lay in the bucket
select * from engine_histograms
where trace = coalesce($trace, trace)
