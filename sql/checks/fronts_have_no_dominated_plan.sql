-- No plan of a quality front is dominated by another one in cost, quality and latency.
-- grain: trace, question, judge, plan
-- reads: quality_front
-- units: US dollars per hour, scores 0 to 1, seconds
select own.trace, own.question, own.judge, own.plan, other.plan as beaten_by
from quality_front as own
inner join quality_front as other using (trace, question, judge)
where
    own.trace = coalesce($trace, own.trace)
    and own.plan <> other.plan
    and other.usd_per_hour <= own.usd_per_hour
    and other.quality >= own.quality
    and other.p95_s <= own.p95_s
