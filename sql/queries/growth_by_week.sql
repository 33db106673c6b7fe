-- What grows from week to week? Requests of every app by week, compared with the same hours a week earlier.
-- grain: trace, app, week_start
-- reads: load_by_hour
-- units: requests; growth_share 0.1 is a tenth more than a week earlier; no row before the second week
-- compared_hours = hours of the week that were recorded a week earlier too, so that an incomplete week is compared fairly
-- requests = requests of the app in these hours
-- requests_before = requests of the app in the same hours a week earlier
with by_hour as (
    select trace, app, hour_start, sum(requests) as requests
    from load_by_hour
    group by trace, app, hour_start
),

recorded as (
    select distinct trace, hour_start
    from load_by_hour
),

comparable as (
    select trace, hour_start
    from recorded
    semi join (select trace, hour_start + interval 7 day as hour_start from recorded) using (trace, hour_start)
),

compared as (
    select trace, app, hour_start, requests, 0 as requests_before
    from by_hour
    union all
    select trace, app, hour_start + interval 7 day as hour_start, 0 as requests, requests as requests_before
    from by_hour
),

by_week as (
    select
        trace, app,
        date_trunc('week', hour_start) as week_start,
        sum(requests)::bigint as requests,
        sum(requests_before)::bigint as requests_before
    from compared
    semi join comparable using (trace, hour_start)
    group by all
),

weeks as (
    select trace, date_trunc('week', hour_start) as week_start, count(*) as compared_hours
    from comparable
    group by all
)

select
    trace, app, week_start, compared_hours, requests, requests_before,
    requests / nullif(requests_before, 0) - 1 as growth_share
from by_week
inner join weeks using (trace, week_start)
order by trace, week_start, requests desc
