-- tier_places: the tiers of a scored day in order: interactive tiers first, then those with the shortest targets.
-- grain: trace, day, tier
-- reads: scorecard, tiers
-- units: place counts from 1
-- is_strictest = whether it is the interactive tier with the shortest TTFT target, then TPOT target; false for a tier without one
with scored as (
    select distinct trace, day, tier
    from scorecard
)

select
    trace, day, tier,
    row_number() over (
        partition by trace, day
        order by
            may_wait(is_held, tier), coalesce(ttft_slo_s, 'inf'), coalesce(tpot_slo_s, 'inf'), deadline_s, tier
    ) as place,
    place = 1 and not may_wait(is_held, tier) and coalesce(ttft_slo_s, tpot_slo_s) is not null as is_strictest
from scored
inner join tiers using (trace, tier)
