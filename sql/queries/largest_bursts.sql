-- When and where were the bursts, and how large? The twenty largest bursts of a trace.
-- grain: trace, tier, region, llm, app, starts_at
-- reads: episodes
-- units: minutes; ratio to the median of the hours around; extra_requests requests above that median
select trace, starts_at, tier, region, llm, app, minutes, ratio, extra_requests
from episodes
where episode_kind = 'burst'
qualify row_number() over (partition by trace order by extra_requests desc, starts_at, tier, region, llm, app) <= 20
order by trace, extra_requests desc
