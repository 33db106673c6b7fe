-- quality_front: the Pareto front of a query: plans that no plan with the same judge beats in replayed cost, quality and latency.
-- grain: trace, question, plan
-- reads: quality_plans
-- units: US dollars per hour, seconds, scores 0 to 1
-- trace = name of the trace of the config <- quality_plans.trace
-- question = name of the query <- quality_plans.question
-- judge = the judge or router <- quality_plans.judge
-- plan = name of the plan <- quality_plans.plan
-- rule = how the llm that answers is chosen: cascade or route <- quality_plans.rule
-- usd_per_hour = cost per hour of replicas and judge <- quality_plans.usd_per_hour
-- quality = mean score of the final answers, replayed <- quality_plans.quality
-- p95_s = replayed P95 <- quality_plans.p95_s
-- promised_quality = quality on the questions that the thresholds were chosen on <- quality_plans.promised_quality
-- p95_by_tables_s = P95 by the tables <- quality_plans.p95_by_tables_s
select
    own.trace,
    own.question,
    own.judge,
    own.plan,
    own.rule,
    own.usd_per_hour,
    own.quality,
    own.p95_s,
    own.promised_quality,
    own.p95_by_tables_s
from quality_plans as own
where
    own.p95_s is not null
    and not exists (
        from quality_plans as other
        where
            (other.trace, other.question, other.judge) = (own.trace, own.question, own.judge)
            and other.usd_per_hour <= own.usd_per_hour
            and other.quality >= own.quality
            and other.p95_s <= own.p95_s
            and (
                other.usd_per_hour < own.usd_per_hour
                or other.quality > own.quality
                or other.p95_s < own.p95_s
                or other.plan < own.plan
            )
    )
