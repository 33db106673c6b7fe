-- What is a better judge worth? The cheapest plan of a front that meets the quality, by rule and judge, compared with a random judge.
-- grain: trace, question, rule, judge
-- reads: quality_plans
-- units: US dollars per hour, scores 0 to 1
-- judge_skill = correlation of the judge's estimate with the score of the answer; null: as fitted with the answers
-- saved_usd_per_hour = saving compared with a random judge; null where that judge cannot meet the quality at any cost
select
    trace,
    question,
    rule,
    judge,
    any_value(judge_skill) as judge_skill,
    min(usd_per_hour) as usd_per_hour,
    max(min(usd_per_hour)) filter (where judge = 'random') over (partition by trace, question, rule)
    - min(usd_per_hour) as saved_usd_per_hour
from quality_plans
where plan_kind = 'front' and quality >= required_quality and trace = coalesce($trace, trace)
group by trace, question, rule, judge
order by trace, question, rule, usd_per_hour, judge
