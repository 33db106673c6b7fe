-- quality_pools: the replicas of each plan of quality_plans, and what their llm does in its replay.
-- grain: trace, question, plan, llm, gpu, tensor_parallel, pipeline_parallel
-- reads: quality_pools
-- units: US dollars per hour, seconds, shares 0 to 1
-- trace = name of the config's trace
-- question = what was asked <- quality_plans.question
-- plan = whose replicas they are <- quality_plans.plan
-- llm = that they serve
-- gpu = GPU type
-- tensor_parallel = GPUs over which a stage is split
-- pipeline_parallel = stages
-- instances = replicas
-- gpus = of all replicas
-- usd_per_hour = of all replicas
-- asked_share = answers by request that the llm makes, drafts included; of a judge of ours those that it judges
-- shadow_share = likewise, of shadow samples that nobody waits for
-- answered_share = of the requests whose answer is the llm's
-- leg_p95_s = P95 of the llm's own leg, from when it was asked to its last token
select * from quality_pools
where trace = coalesce($trace, trace)
