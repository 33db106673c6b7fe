-- tier_attainment: how often every tier met its targets under each policy of a day, and which tiers come first.
-- grain: trace, day, policy, tier
-- reads: scorecard, tier_places
-- units: requests, *_share 0 to 1
-- is_held = whether the queue manager may hold the tier's requests; the others are interactive
-- place = of the tier, from 1: interactive tiers come first, then those with the shortest targets
-- is_strictest = whether it is the interactive tier with the shortest TTFT target, then TPOT target; never true without one
-- attainment_share = requests that met all targets of the tier (sql/macros/slo.sql)
-- worst_llm_attainment_share = the same, of the llm that met its SLO least often
-- ttft_attainment_share = whose first token came in time; null where the tier has no such target
-- tpot_attainment_share = whose tokens came fast enough; null where the tier has no such target
-- pending = requests without a TTFT target that still waited at the end with their deadline ahead
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
),

joined as (
    select attained.*, place, is_strictest, worst_llm_attainment_share
    from attained
    left join worst using (trace, day, policy, tier)
    left join tier_places using (trace, day, tier)
)

select * from joined
