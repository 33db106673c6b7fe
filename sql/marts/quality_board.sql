-- quality_board: the plans of a query compared: cost, quality, latency, GPUs, share of each llm, and the cost above the chosen plan.
-- grain: trace, question, plan
-- reads: quality_plans, quality_pools
-- units: US dollars per hour, seconds, scores and shares 0 to 1
-- trace = name of the trace of the config <- quality_plans.trace
-- question = name of the query <- quality_plans.question
-- plan = name of the plan <- quality_plans.plan
-- plan_kind = chosen; baseline, sized by tables; policy, sized by replays; whatif; or front <- quality_plans.plan_kind
-- rule = how the llm that answers is chosen: cascade or route <- quality_plans.rule
-- judge = the judge or router <- quality_plans.judge
-- usd_per_hour = cost per hour of replicas and judge <- quality_plans.usd_per_hour
-- over_chosen_share = cost above the chosen plan of the query <- quality_plans.usd_per_hour
-- quality = mean score of the final answers, replayed <- quality_plans.quality
-- p95_s = replayed P95 <- quality_plans.p95_s
-- p95_by_tables_s = P95 by the tables <- quality_plans.p95_by_tables_s
-- is_kept = whether quality and P95 meet the query, within a standard error of the quality <- quality_plans.quality, quality_plans.p95_s
-- gpus = number of GPUs of all replicas <- quality_pools.gpus
-- who = share of requests by llm of the final answer, largest first <- quality_pools.final_answer_share
with held as (
    select
        trace,
        question,
        plan,
        sum(gpus)::bigint as gpus
    from quality_pools
    group by trace, question, plan
),

shares as (
    select
        trace,
        question,
        plan,
        string_agg(format('{} {:.0f} %', llm, 100 * share), ', ' order by share desc, llm) as who
    from (
        select trace, question, plan, llm, any_value(final_answer_share) as share
        from quality_pools
        group by trace, question, plan, llm
    )
    where share > 0 -- an llm judge gives no final answers
    group by trace, question, plan
)

select
    plans.trace,
    plans.question,
    plans.plan,
    plans.plan_kind,
    plans.rule,
    plans.judge,
    plans.usd_per_hour,
    plans.usd_per_hour / max(plans.usd_per_hour) filter (where plans.plan_kind = 'chosen') over of_question - 1
        as over_chosen_share,
    plans.quality,
    plans.p95_s,
    plans.p95_by_tables_s,
    plans.quality + (plans.quality - plans.quality_low) / 1.96 >= plans.required_quality
    and coalesce(plans.p95_s <= plans.required_latency_s, false) as is_kept,
    held.gpus,
    shares.who
from quality_plans as plans
left join held using (trace, question, plan)
left join shares using (trace, question, plan)
window of_question as (partition by plans.trace, plans.question)
