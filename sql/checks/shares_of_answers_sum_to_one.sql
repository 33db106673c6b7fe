-- Every request has one final answer under every quality plan: the shares of the llms sum to 1.
-- grain: trace, question, plan
-- reads: quality_plans, quality_pools
-- units: shares 0 to 1
with shares as (
    select trace, question, plan, llm, any_value(final_answer_share) as share
    from quality_pools
    where trace = coalesce($trace, trace)
    group by trace, question, plan, llm
),

summed as (
    select trace, question, plan, sum(share) as final_answer_share
    from shares
    group by trace, question, plan
)

select trace, question, plan, final_answer_share
from quality_plans
left join summed using (trace, question, plan)
where
    trace = coalesce($trace, trace)
    and coalesce(abs(final_answer_share - 1) > 1e-6, true)
