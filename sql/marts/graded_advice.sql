-- graded_advice: what was promised of each advised day, and what came: the advised fleet replayed on the day's requests.
-- grain: trace, day
-- reads: advised_days, trials
-- units: *_share 0 to 1, *_usd and usd US dollars of the whole day
-- scaling_rule = static, day_ahead, reflex or compact
-- plan_headroom_share = instances and load per instance above the plan
-- largest_fleet = instances of the largest hour, like 3 x llama3.1-8b@2xl40s-48gb, with commas between
-- in_time_share = interactive requests that met their targets; null until the day is graded
-- usd = cost of the instances: the advised fleet on the day; null until the day is graded
-- is_on_target = whether every tier attained its target
-- is_inside_in_time = whether in_time_share lay in its interval
-- is_inside_usd = whether usd lay in its interval
-- is_inside = both
-- high_usd = upper end of the cost: of the promise
-- low_usd = lower end of the cost: of the promise
with came as (
    select
        trace, day,
        max(value) filter (where metric = 'usd') as usd,
        max(value) filter (where metric = 'attainment_share' and tier = 'all') as in_time_share
    from trials
    where experiment = 'advice'
    group by trace, day
),

of_tiers as (
    select
        trials.trace, trials.day,
        bool_and(value >= element_at(tier_target_share, tier)[1]) as is_on_target
    from trials
    inner join advised_days using (trace, day)
    where experiment = 'advice' and metric = 'attainment_share'  -- 'all' has no target
    group by trials.trace, trials.day
),

compared as (
    select
        trace, day, scaling_rule, plan_headroom_share, largest_fleet, survives, is_promised, required_share, promised_share,
        in_time_low_share, in_time_share, in_time_high_share,
        low_usd, usd, high_usd,
        is_on_target,
        is_inside(in_time_share, in_time_low_share, in_time_high_share) as is_inside_in_time,
        is_inside(usd, low_usd, high_usd) as is_inside_usd
    from advised_days
    left join came using (trace, day)
    left join of_tiers using (trace, day)
)

select
    *,
    is_inside_in_time and is_inside_usd as is_inside
from compared
