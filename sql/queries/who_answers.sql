-- Which llms answer under the chosen plan? Requests and money by llm, and the P95 of its stage.
-- grain: trace, question, llm
-- reads: quality_plans, quality_pools
-- units: US dollars per hour, seconds, shares 0 to 1
-- stage_share = answers of the llm per request, drafts included
-- final_answer_share = share of requests whose final answer comes from the llm
-- money_share = share of the cost of all replicas
select
    pools.trace,
    pools.question,
    pools.llm,
    sum(pools.instances)::bigint as instances,
    sum(pools.gpus)::bigint as gpus,
    sum(pools.usd_per_hour) as usd_per_hour,
    sum(pools.usd_per_hour) / sum(sum(pools.usd_per_hour)) over (partition by pools.trace, pools.question)
        as money_share,
    any_value(pools.stage_share) as stage_share,
    any_value(pools.final_answer_share) as final_answer_share,
    any_value(pools.leg_p95_s) as leg_p95_s
from quality_pools as pools
join quality_plans as plans using (trace, question, plan)
where plans.plan_kind = 'chosen' and pools.trace = coalesce($trace, pools.trace)
group by pools.trace, pools.question, pools.llm
order by pools.trace, pools.question, final_answer_share desc, pools.llm
