-- Do regions help each other? Requests of each region and tier that another region served, and their latency.
-- grain: trace, day, policy, tier, region, served_region
-- reads: outcomes
-- units: requests, ttft_p95_s seconds; share of the served requests of the region and tier, 0 to 1
with counted as (
    select
        trace, day, policy, tier, region, served_region,
        count(*) as requests,
        percentiles(ttft_s)[3] as ttft_p95_s
    from outcomes
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day) and served_region is not null
    group by trace, day, policy, tier, region, served_region
)

select
    *,
    requests / sum(requests) over (partition by trace, day, policy, tier, region) as share
from counted
order by trace, day, policy, tier, region, requests desc
