-- Which parts of the load stepped up or down for good, and when?
-- grain: trace, tier, region, llm, app, starts_at
-- reads: episodes
-- units: ratio of the level after to that before, daily rhythm apart
select trace, starts_at, tier, region, llm, app, ratio
from episodes
where kind = 'change'
order by trace, starts_at, tier, region, llm, app
