-- Which parts of the load changed their level lastingly, and when?
-- grain: trace, tier, region, llm, app, starts_at
-- reads: episodes
-- units: level after over level before, without the daily rhythm
select trace, starts_at, tier, region, llm, app, ratio
from episodes
where episode_kind = 'change'
order by trace, starts_at, tier, region, llm, app
