-- Which parts of the load can be forecast, and how far ahead? Skill of the best simple forecast over the last value.
-- grain: trace, tier, region, llm, app
-- reads: characterisation
-- units: skill_* 0 to 1; strengths 0 to 1
select
    trace, tier, region, llm, app, requests_per_s, daily_strength, weekly_strength,
    best_10min, skill_10min, best_60min, skill_60min, best_120min, skill_120min
from characterisation
order by trace, skill_120min desc nulls last, requests_per_s desc
