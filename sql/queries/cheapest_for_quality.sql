-- For each query and judge: what is the cheapest plan that meets quality and latency in the replay?
-- grain: trace, question, judge
-- reads: quality_board
-- units: US dollars per hour, seconds, scores 0 to 1
select
    trace,
    question,
    judge,
    arg_min(plan, usd_per_hour) as plan,
    min(usd_per_hour) as usd_per_hour,
    arg_min(quality, usd_per_hour) as quality,
    arg_min(p95_s, usd_per_hour) as p95_s,
    arg_min(who, usd_per_hour) as who
from quality_board
where is_kept and trace = coalesce($trace, trace)
group by trace, question, judge
order by trace, question, usd_per_hour
