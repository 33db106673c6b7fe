-- What grows from week to week? Requests per recorded day of every app, week by week, against the week before.
-- grain: trace, app, week_start
-- reads: load_by_hour
-- units: requests per recorded day; growth_share 0.1 is a tenth more than the week before
with by_week as (
    select
        trace, app,
        date_trunc('week', day) as week_start,
        count(distinct day) as days,
        sum(requests) / count(distinct day) as requests_per_day
    from load_by_hour
    group by all
),

compared as (
    select
        *,
        requests_per_day / lag(requests_per_day) over (partition by trace, app order by week_start) - 1 as growth_share
    from by_week
)

select * from compared
order by trace, week_start, requests_per_day desc
