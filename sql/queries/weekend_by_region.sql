-- Are weekends quieter in every region? Load of a weekend day over that of a working day, by tier and region.
-- grain: trace, tier, region
-- reads: load_by_hour
-- units: requests per day; weekend_ratio 1 is equal load; null where one of the two was not recorded
with by_day as (
    select trace, tier, region, day, isodow(day) >= 6 as is_weekend, sum(requests) as requests
    from load_by_hour
    group by all
)

select
    trace, tier, region,
    avg(requests) filter (where not is_weekend) as working_day_requests,
    avg(requests) filter (where is_weekend) as weekend_day_requests,
    weekend_day_requests / working_day_requests as weekend_ratio
from by_day
group by trace, tier, region
order by trace, tier, region
