-- When is the week busiest? The three busiest hours of the week of every tier, and the quietest one.
-- grain: trace, tier, weekday, hour
-- reads: load_by_hour
-- units: requests per second; weekday 1 is Monday, UTC
with by_hour as (
    select trace, tier, hour_start, sum(requests_per_s) as requests_per_s
    from load_by_hour
    group by trace, tier, hour_start
),

by_week as (
    select
        trace, tier,
        isodow(hour_start) as weekday,
        hour(hour_start) as hour,
        avg(requests_per_s) as requests_per_s
    from by_hour
    group by all
),

ranked as (
    select
        *,
        row_number() over (partition by trace, tier order by requests_per_s desc, weekday, hour) as place,
        count(*) over (partition by trace, tier) as hours
    from by_week
)

select trace, tier, weekday, hour, requests_per_s, place from ranked
where place <= 3 or place = hours
order by trace, tier, place
