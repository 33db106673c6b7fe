-- foresight: cost of each policy by boot time over unseen days: what a forecast is worth.
-- grain: trace, boot_s, min_instances, policy
-- reads: trials
-- units: US dollars, shares 0 to 1
-- trace = name of the trace
-- day = UTC; the last unseen day
-- boot_s = median time from the decision to add an instance until it serves
-- min_instances = minimum of each pool that has one; null: as in the config
-- against = what the row is compared with: the policy without a forecast, with the same mechanisms
-- total_usd = cost, with the remaining cost of the non-interactive requests that were not served by midnight; of the unseen days
-- days = number of days: unseen ones
-- days_on_target = those on which every tier attained its target
-- is_ranked = whether at most one day of five missed a target, and the knob is one that attained on all known days
-- worst_ratio = attainment over target of the worst tier of the worst day
-- mean_ratio = attainment over target of the worst tier, mean of the days
-- minimum_share = cost of the minimum of instances over total_usd of `against`
-- over_reflex_share = total_usd above that of `against`, at the same boot time and minimum; null where that is not ranked
-- low_over_reflex_share = lower end of its 95 % interval: Student's t on the differences of the days
-- high_over_reflex_share = upper end of it
with found as (
    select
        trace, day, policy, knobs['boot_s'] as boot_s, knobs['min_instances'] as min_instances,
        labels['reading'] as reading, knobs['factor'] as factor, labels['against'] as against,
        max(value) filter (where metric = 'total_usd')      as total_usd,
        max(value) filter (where metric = 'attained_ratio') as attained_ratio,
        max(value) filter (where metric = 'floor_usd')      as floor_usd,
        max(value) filter (where metric = 'known_ratio')    as known_ratio
    from trials
    where experiment = 'foresight'
    group by trace, day, policy, knobs, labels
),

paired as (
    select own.*, other.total_usd as reflex_usd
    from found as own
    left join found as other
        on other.trace = own.trace and other.day = own.day and other.boot_s = own.boot_s
        and other.min_instances is not distinct from own.min_instances and other.policy = own.against
),

summed as (
    select
        trace, max(day) as day, boot_s, min_instances, policy, against, any_value(reading) as reading, any_value(factor) as factor,
        sum(total_usd)                                  as total_usd,
        count(*)                                        as days,
        count_if(attained_ratio >= 1)::bigint           as days_on_target,
        min(known_ratio)                                as known_ratio,
        min(attained_ratio)                             as worst_ratio,
        avg(attained_ratio)                             as mean_ratio,
        sum(floor_usd)                                  as floor_usd,
        avg(reflex_usd)                                 as mean_reflex_usd,
        avg(total_usd - reflex_usd)                     as difference_usd,
        student_half_width(total_usd - reflex_usd)      as half_width_usd
    from paired
    group by trace, boot_s, min_instances, policy, against
),

ranked as (
    select *, days_on_target >= 0.8 * days and known_ratio >= 1 as is_ranked from summed
)

select
    own.trace, own.day, own.boot_s, own.min_instances, own.policy, own.against, own.reading, own.factor, own.total_usd,
    own.days, own.days_on_target, own.is_ranked, own.worst_ratio, own.mean_ratio,
    own.floor_usd / (own.days * own.mean_reflex_usd) as minimum_share,
    if(base.is_ranked, own.difference_usd / own.mean_reflex_usd, null) as over_reflex_share,
    if(base.is_ranked, (own.difference_usd - own.half_width_usd) / own.mean_reflex_usd, null) as low_over_reflex_share,
    if(base.is_ranked, (own.difference_usd + own.half_width_usd) / own.mean_reflex_usd, null) as high_over_reflex_share
from ranked as own
left join ranked as base
    on base.trace = own.trace and base.boot_s = own.boot_s
    and base.min_instances is not distinct from own.min_instances and base.policy = own.against
