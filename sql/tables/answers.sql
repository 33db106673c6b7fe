-- answers: what llms answered to queries, how well, and what judges say of it, as it was landed.
-- grain: trace, query_id, llm
-- reads: answers
-- units: tokens; score from 0 to 1; hardness and judges in units of their own, which rise
-- trace = name of the trace
-- file varchar = the landed file
-- query_id varchar = of the query that was answered
-- llm varchar = that answered
-- score double = how good the answer is; quality is the mean of it
-- output_tokens integer = of the answer
-- input_tokens integer = of the query; null where the file does not say, as all below
-- hardness double = what a router says of the query before any answer: higher is harder
-- judges map(varchar, double) = what each judge says of the answer, by its name: higher is better
select * from answers
where trace = coalesce($trace, trace)
