-- graded_tiers: what was promised of each tier of an advised day, and what came; graded_advice has the day and its cost.
-- grain: trace, day, tier
-- reads: advised_days, trials
-- units: *_share 0 to 1
-- low_attainment_share = promised attainment of the tier, lower end
-- attainment_share = share of requests that met all their targets (sql/macros/slo.sql); null until the day is graded, or if the tier had none
-- high_attainment_share = promised attainment of the tier, upper end
-- required_attainment_share = target of the tier
-- has_attained = whether attainment_share was at least the target
-- is_interval_kept = whether attainment_share lay in its interval: the promise of the tier was kept
with promised as (
    select *, unnest(map_keys(tier_target_share)) as tier from advised_days
),

came as (
    select trace, day, tier, value as attainment_share
    from trials
    where experiment = 'advice' and metric = 'attainment_share'
),

compared as (
    select
        trace, day, tier,
        element_at(tier_low_share, tier)[1] as low_attainment_share,
        attainment_share,
        element_at(tier_high_share, tier)[1] as high_attainment_share,
        element_at(tier_target_share, tier)[1] as required_attainment_share
    from promised
    left join came using (trace, day, tier)
)

select
    *,
    attainment_share >= required_attainment_share as has_attained,
    is_inside(attainment_share, low_attainment_share, high_attainment_share) as is_interval_kept
from compared
