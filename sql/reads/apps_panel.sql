-- apps_panel: requests and tokens per second of the largest apps on the busiest day of a trace.
-- grain: time, tier
-- reads: load_by_hour, top_apps
-- units: requests per second; tokens per second
with days as (select day, sum(requests) as requests from load_by_hour where trace = $trace group by day),

busiest as (select day from days order by requests desc, day limit 1)

select hour_start::timestamp as time, tier, sum(requests_per_s) as requests, sum(tokens_per_s) as tokens
from load_by_hour
where trace = $trace and day = (select day from busiest) and app in (
    select app from top_apps where trace = $trace and tier = 'all' and place <= 10
)
group by all
order by all
