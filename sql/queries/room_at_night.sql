-- How much niw would fit into the quiet hours? Interactive tokens below their daily peak, against the niw tokens of the day.
-- grain: trace, day, region
-- reads: load_by_hour
-- units: tokens; niw_in_room 1 is as much niw as there is room under the day's interactive peak
with by_hour as (
    select
        trace, day, region, hour_start,
        3600 * coalesce(sum(tokens_per_s) filter (where tier <> 'niw'), 0) as interactive,
        3600 * coalesce(sum(tokens_per_s) filter (where tier = 'niw'), 0) as niw
    from load_by_hour
    group by trace, day, region, hour_start
),

by_day as (
    select
        trace, day, region,
        max(interactive) as peak_hour_tokens,
        count(*) * max(interactive) - sum(interactive) as room_tokens,
        sum(niw) as niw_tokens
    from by_hour
    group by trace, day, region
)

select *, niw_tokens / nullif(room_tokens, 0) as niw_in_room from by_day
order by trace, day, region
