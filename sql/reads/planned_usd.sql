-- planned_usd: USD of the corrected plan by llm.
-- grain: llm
-- reads: plans
-- units: USD
select llm, sum(usd) as usd
from plans
where trace = $trace and day = $day and policy = 'corrected'
group by llm
