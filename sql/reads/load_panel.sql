-- load_panel: requests and tokens per second by hour of each tier, region and llm.
-- grain: time, tier, region, llm
-- reads: load_by_hour
-- units: requests per second; tokens per second
select
    hour_start::timestamp as time, tier, region, llm,
    sum(requests_per_s) as requests,
    sum(tokens_per_s) as tokens
from load_by_hour
where trace = $trace
group by all
order by all
