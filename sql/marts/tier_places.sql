-- tier_places: the tiers of a trace in order: interactive tiers come first, then those with the shortest targets.
-- grain: trace, tier
-- reads: tiers
-- units: place counts from 1
-- is_strictest = whether it is the interactive tier with the shortest TTFT target, then TPOT target; never true without one
with placed as (
    select
        trace, tier,
        row_number() over (
            partition by trace
            order by
                may_wait(is_held, tier), coalesce(ttft_slo_s, 'inf'), coalesce(tpot_slo_s, 'inf'), deadline_s, tier
        ) as place,
        place = 1 and not may_wait(is_held, tier) and coalesce(ttft_slo_s, tpot_slo_s) is not null as is_strictest
    from tiers
)

select * from placed
