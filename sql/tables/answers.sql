-- answers: the answers of llms to queries, with their scores and the estimates of judges, as landed.
-- grain: trace, query_id, llm
-- reads: answers
-- units: tokens; score from 0 to 1; hardness and judges in their own units, larger is harder or better
-- trace = name of the trace
-- file varchar = the landed file
-- query_id varchar = id of the query, as in the landed answers
-- llm varchar = the served network: the one that answered
-- score double = how good the answer is; quality is the mean of the scores
-- output_tokens integer = output tokens of the row's requests: of the answer
-- input_tokens integer = input tokens of the row's requests: of the query; null where the file does not have it, like all columns below
-- hardness double = a router's estimate before any answer: higher is harder
-- judges map(varchar, double) = the estimate of each judge by its name: higher is better
select * from answers
where trace = coalesce($trace, trace)
