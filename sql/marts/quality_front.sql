-- quality_front: the plans of a question that no other one of the same judge beats in cost, quality and latency as replayed.
-- grain: trace, question, plan
-- reads: quality_plans
-- units: US dollars per hour, seconds, scores 0 to 1
-- trace = name of the config's trace <- quality_plans.trace
-- question = what was asked <- quality_plans.question
-- judge = who sends on, or routes <- quality_plans.judge
-- plan = its name <- quality_plans.plan
-- rule = cascade or route <- quality_plans.rule
-- usd_per_hour = of replicas and judge <- quality_plans.usd_per_hour
-- quality = replayed <- quality_plans.quality
-- p95_s = replayed <- quality_plans.p95_s
-- promised_quality = on the questions that thresholds were chosen on <- quality_plans.promised_quality
-- promised_p95_s = by the tables <- quality_plans.promised_p95_s
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
    own.promised_p95_s
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
