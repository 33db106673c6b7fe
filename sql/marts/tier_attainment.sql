-- tier_attainment: SLO attainment of every tier under each policy of a day, and the order of the tiers.
-- grain: trace, day, policy, tier
-- reads: scorecard, tier_places
-- units: requests, *_share 0 to 1
-- place = rank, from 1: interactive tiers first, then those with the shortest targets
-- is_strictest = whether it is the interactive tier with the shortest TTFT target, then TPOT target; false for a tier without one
-- worst_llm_attainment_share = the same for the llm with the lowest attainment
-- pending = requests without a TTFT target that were still queued at the end, before their deadline
with attained as (
    select
        trace, day, policy, tier,
        bool_or(may_wait(is_held, tier)) as is_held,
        sum(requests)::bigint as requests,
        sum(met)::bigint as met,
        sum(missed)::bigint as missed,
        sum(pending)::bigint as pending,
        attainment_share(sum(met), sum(requests), sum(pending)) as attainment_share,
        attainment_share(sum(ttft_met), sum(requests), sum(pending)) as ttft_attainment_share,
        attainment_share(sum(tpot_met), sum(requests), sum(pending)) as tpot_attainment_share
    from scorecard
    group by trace, day, policy, tier
),

worst as (
    select trace, day, policy, tier, min(share) as worst_llm_attainment_share
    from (
        select trace, day, policy, tier, llm, attainment_share(sum(met), sum(requests), sum(pending)) as share
        from scorecard
        group by trace, day, policy, tier, llm
    )
    group by trace, day, policy, tier
)

select attained.*, place, is_strictest, worst_llm_attainment_share
from attained
left join worst using (trace, day, policy, tier)
left join tier_places using (trace, day, tier)
