-- Which app caused Tuesday's peak in the east? The busiest hour of the day in every region by app, compared with that hour on other days.
-- grain: trace, region, app
-- reads: load_by_hour
-- units: requests; *_share 0 to 1; $day selects the day, default the busiest day of the trace
-- hour_start = the peak hour of the region, UTC
-- request_share = share of the region's requests in that hour
-- requests = requests of the app in the peak hour
-- usual_requests = mean requests of the app in the same hour of the other days; null where there is no other day
-- extra_requests = requests above the usual ones: the first app caused the peak
with by_hour as (
    select trace, day, hour_start, region, app, sum(requests) as requests
    from load_by_hour
    where trace = coalesce($trace, trace)
    group by all
),

by_region as (
    select trace, region, day, hour_start, sum(requests) as requests
    from by_hour
    where day = coalesce($day::date, day)
    group by trace, region, day, hour_start
),

peaks as (
    select trace, region, day, hour_start
    from by_region
    qualify row_number() over (partition by trace, region order by requests desc, hour_start) = 1
),

usual as (
    select by_hour.trace, by_hour.region, by_hour.app, sum(requests) / count(distinct by_hour.day) as requests
    from by_hour
    inner join peaks
        on by_hour.trace = peaks.trace and by_hour.region = peaks.region
        and by_hour.day <> peaks.day and hour(by_hour.hour_start) = hour(peaks.hour_start)
    group by all
)

select
    by_hour.trace, by_hour.region, by_hour.app, by_hour.hour_start,
    by_hour.requests,
    usual.requests as usual_requests,
    by_hour.requests - coalesce(usual.requests, 0) as extra_requests,
    by_hour.requests / sum(by_hour.requests) over (partition by by_hour.trace, by_hour.region) as request_share
from by_hour
inner join peaks using (trace, region, hour_start)
left join usual using (trace, region, app)
order by trace, region, extra_requests desc
