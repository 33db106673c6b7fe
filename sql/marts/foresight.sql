-- foresight: cost of each policy by boot time over unseen days: what a forecast is worth.
-- grain: trace, boot_s, policy
-- reads: trials
-- units: US dollars, shares 0 to 1
-- trace = name of the trace
-- day = UTC; the last unseen day
-- boot_s = median time from the decision to add an instance until it serves
-- total_usd = cost, with the remaining cost of the non-interactive requests that were not served by midnight; of the unseen days
-- days = number of days: unseen ones
-- days_on_target = those on which every tier attained its target
-- is_ranked = whether at most one day of five missed a target, and the knob is one that attained on all known days
-- worst_ratio = attainment over target of the worst tier of the worst day
-- mean_ratio = attainment over target of the worst tier, mean of the days
-- over_reflex_share = total_usd above that of the policy without a forecast at the same boot time
with found as (
    select
        trace, day, policy, knobs['boot_s'] as boot_s, labels['reading'] as reading, knobs['factor'] as factor,
        max(value) filter (where metric = 'total_usd')              as total_usd,
        max(value) filter (where metric = 'days')::bigint           as days,
        max(value) filter (where metric = 'days_on_target')::bigint as days_on_target,
        max(value) filter (where metric = 'known_ratio')            as known_ratio,
        max(value) filter (where metric = 'worst_ratio')            as worst_ratio,
        max(value) filter (where metric = 'mean_ratio')             as mean_ratio
    from trials
    where experiment = 'foresight'
    group by trace, day, policy, knobs['boot_s'], labels['reading'], knobs['factor']
),

latest as (
    select * from found qualify day = max(day) over (partition by trace)
)

select
    trace, day, boot_s, policy, reading, factor, total_usd, days, days_on_target,
    days_on_target >= 0.8 * days and known_ratio >= 1 as is_ranked, worst_ratio, mean_ratio,
    total_usd / max(total_usd) filter (where policy = 'reflex') over (partition by trace, boot_s) - 1
        as over_reflex_share
from latest
