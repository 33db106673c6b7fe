-- unseen_board: cost and attainment of each policy over the unseen days, with knobs that were frozen before them.
-- grain: trace, policy
-- reads: unseen_days
-- units: US dollars, GPU-hours, shares 0 to 1
-- knows_the_day = whether it plans from the true demand of the day
-- days = number of days: unseen ones
-- days_on_target = those on which every tier attained its target
-- is_ranked = whether at most one day of five missed a target, and the knob is one that attained on all known days
-- total_usd = cost, with the remaining cost of the non-interactive requests that were not served by midnight; of the unseen days
-- gpu_hours = GPU-hours of serving, booting and draining; of the unseen days
-- over_cheapest_share = total_usd above that of the cheapest ranked policy that does not know the day
-- low_over_cheapest_share = the least of the same share over the days
-- high_over_cheapest_share = the largest of it
-- half_width_share = half of the 95 % interval of over_cheapest_share: Student's t on the differences of the days; null for one day
-- over_clairvoyant_usd_share = total_usd above that of the clairvoyant, which plans with the true demand of each hour
-- over_known_minutes_share = total_usd above that of a fleet that knows the work of each minute (unseen_days)
-- worst_ratio = attainment over target of the worst tier of the worst day
-- worst_tier = the tier with the least attainment over its target; on the worst day
-- worst_day = that day
-- mean_ratio = attainment over target of the worst tier, mean of the days
-- known_ratio = attainment over target on the worst known day
-- known_usd = what the same trial cost on the known days
-- is_chosen = whether it is what one would run after the known days: the cheapest on them, of the policies with a margin above every target
-- cliff_share = how much larger the factor may be before next_day_ratio falls below 0.9; null: never seen
-- floor_share = cost of the minimum of instances over that of the clairvoyant
with judged as (
    select *, max(known_minutes_usd) over (partition by trace, day) as reference_usd
    from unseen_days
    where purpose = 'judged'
),

summed as (
    select
        trace, policy, any_value(what) as what, any_value(knows_the_day) as knows_the_day,
        any_value(reading) as reading, any_value(factor) as factor,
        count(*)                             as days,
        count_if(attained_ratio >= 1)        as days_on_target,
        sum(total_usd)                       as total_usd,
        sum(gpu_hours)                       as gpu_hours,
        min(attained_ratio)                  as worst_ratio,
        arg_min(worst_tier, attained_ratio)  as worst_tier,
        arg_min(day, attained_ratio)         as worst_day,
        avg(attained_ratio)                  as mean_ratio,
        any_value(next_day_ratio)            as next_day_ratio,
        any_value(cliff_share)               as cliff_share,
        sum(floor_usd)                       as floor_usd,
        sum(reference_usd)                   as known_minutes_usd
    from judged
    group by trace, policy
),

known as (
    select trace, policy, reading, factor, min(attained_ratio) as known_ratio, sum(total_usd) as known_usd
    from unseen_days
    where purpose = 'tuned'
    group by trace, policy, reading, factor
),

ranked as (
    select summed.*, known_ratio, known_usd, days_on_target >= 0.8 * days and known_ratio >= 1 as is_ranked
    from summed
    inner join known using (trace, policy, reading, factor)
),

cheapest as (
    select trace, arg_min(policy, total_usd) as cheapest_policy, min(total_usd) as total_usd
    from ranked
    where is_ranked and not knows_the_day
    group by trace
),

chosen as (
    select trace, arg_min(policy, known_usd) as policy
    from ranked
    where known_ratio >= 1 and next_day_ratio >= 1 and not knows_the_day
    group by trace
),

by_day as (
    select
        judged.trace, judged.policy,
        min(judged.total_usd / best.total_usd - 1) as low_over_cheapest_share,
        max(judged.total_usd / best.total_usd - 1) as high_over_cheapest_share,
        student_half_width(judged.total_usd - best.total_usd) / avg(best.total_usd) as half_width_share
    from judged
    inner join cheapest using (trace)
    inner join judged as best on best.trace = judged.trace and best.day = judged.day and best.policy = cheapest.cheapest_policy
    group by judged.trace, judged.policy
),

perfect as (
    select trace, total_usd, floor_usd from summed where policy = 'clairvoyant'
)

select
    ranked.trace, ranked.policy, what, knows_the_day, reading, factor, days, days_on_target, is_ranked,
    ranked.total_usd, gpu_hours,
    ranked.total_usd / cheapest.total_usd - 1 as over_cheapest_share,
    low_over_cheapest_share, high_over_cheapest_share, half_width_share,
    ranked.total_usd / perfect.total_usd - 1  as over_clairvoyant_usd_share,
    ranked.total_usd / ranked.known_minutes_usd - 1 as over_known_minutes_share,
    worst_ratio, worst_tier, worst_day, mean_ratio, known_ratio, next_day_ratio, cliff_share,
    known_usd, chosen.policy is not null as is_chosen,
    perfect.floor_usd / perfect.total_usd     as floor_share
from ranked
left join cheapest using (trace)
left join by_day using (trace, policy)
left join perfect using (trace)
left join chosen using (trace, policy)
