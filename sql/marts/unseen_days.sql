-- unseen_days: cost and attainment of each policy on each day of a comparison: its trials on known days, its score on unseen ones.
-- grain: trace, day, policy, reading, factor
-- reads: trials
-- units: US dollars, GPU-hours, shares 0 to 1
-- trace = name of the trace
-- day = UTC
-- policy = the scaling policy (models/world/policies.py)
-- knows_the_day = whether it plans from the true demand of the day
-- purpose = tuned: a knob was searched on this day; judged: all knobs were fixed before
-- floor_usd = cost of the minimum of instances, all day
-- known_minutes_usd = cost of a fleet that knows the work of each minute, at the capacity of compact; null without compact
-- next_day_ratio = attained_ratio that the next day should exceed with nine chances in ten, by the frozen trial's known days; null for known days
-- cliff_share = how much larger the factor may be before next_day_ratio falls below 0.9; null: never seen
select
    trace, day, variant as policy, any_value(labels['what']) as what, purpose,
    coalesce(any_value(labels['knows_the_day']) = 'true', false) as knows_the_day,
    labels['reading'] as reading, knobs['factor'] as factor,
    max(value) filter (where metric = 'usd')
    + coalesce(max(value) filter (where metric = 'backlog_usd'), 0)     as total_usd,
    max(value) filter (where metric = 'gpu_hours')                      as gpu_hours,
    min(value) filter (where metric = 'attained_ratio')                 as attained_ratio,
    arg_min(tier, value) filter (where metric = 'attained_ratio')       as worst_tier,
    max(value) filter (where metric = 'floor_usd')                      as floor_usd,
    max(value) filter (where metric = 'fluid_usd')                      as fluid_usd,
    max(value) filter (where metric = 'known_minutes_usd')              as known_minutes_usd,
    max(value) filter (where metric = 'next_day_ratio')                 as next_day_ratio,
    max(value) filter (where metric = 'cliff_share')                    as cliff_share
from trials
where experiment = 'unseen' and llm = 'all'
group by trace, day, variant, purpose, labels['reading'], knobs['factor']
