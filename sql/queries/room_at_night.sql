-- How much of the deferrable load would fit into the quiet hours? Interactive tokens below their daily peak, compared with the day's tokens of deferrable tiers.
-- grain: trace, day, region
-- reads: load_by_hour, tiers
-- units: tokens; held_in_room 1 fills the room under the day's interactive peak
with by_hour as (
    select
        trace, day, region, hour_start,
        3600 * coalesce(sum(tokens_per_s) filter (where not may_wait(is_held, tier)), 0) as interactive,
        3600 * coalesce(sum(tokens_per_s) filter (where may_wait(is_held, tier)), 0) as held
    from load_by_hour
    left join tiers using (trace, tier)
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day, region, hour_start
),

by_day as (
    select
        trace, day, region,
        max(interactive) as peak_hour_tokens,
        count(*) * max(interactive) - sum(interactive) as room_tokens,
        sum(held) as held_tokens
    from by_hour
    group by trace, day, region
)

select *, held_tokens / nullif(room_tokens, 0) as held_in_room from by_day
order by trace, day, region
