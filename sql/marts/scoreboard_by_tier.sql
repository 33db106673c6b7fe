-- scoreboard_by_tier: what every tier met under each policy of a day, by all its targets and by each alone.
-- grain: trace, day, policy, tier
-- reads: scorecard, outcomes
-- units: requests, *_share 0 to 1, *_s seconds; percentiles over the requests that got that far
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

targets as (
    select
        trace, day, tier,
        bool_or(may_wait(is_held, tier)) as is_held,
        coalesce(min(ttft_slo_s), 'inf') as ttft_slo_s,
        coalesce(min(tpot_slo_s), 'inf') as tpot_slo_s,
        min(deadline_s) as deadline_s
    from outcomes
    group by trace, day, tier
),

placed as (
    select
        trace, day, tier,
        row_number() over (
            partition by trace, day
            order by is_held, ttft_slo_s, tpot_slo_s, deadline_s, tier
        ) as place,
        place = 1 and not is_held and least(ttft_slo_s, tpot_slo_s) < 'inf' as is_strictest
    from targets
),

waited as (
    select
        trace, day, policy, tier,
        percentiles(ttft_s) as ttft,
        percentiles(tpot_s) as tpot,
        percentiles(e2e_s) as e2e
    from outcomes
    anti join days_of_many() using (trace, day, policy)
    group by trace, day, policy, tier
    union all
    select
        trace, day, policy, whom as tier,
        any_value(percentiles) filter (where measure = 1) as ttft,
        any_value(percentiles) filter (where measure = 2) as tpot,
        any_value(percentiles) filter (where measure = 3) as e2e
    from percentiles_of_day([ttft_s, tpot_s, e2e_s], tier)
    group by trace, day, policy, whom
),

joined as (
    select
        attained.*, place, is_strictest, worst_llm_attainment_share,
        ttft[1] as ttft_p50_s, ttft[2] as ttft_p90_s, ttft[3] as ttft_p95_s, ttft[4] as ttft_p99_s,
        tpot[1] as tpot_p50_s, tpot[2] as tpot_p90_s, tpot[3] as tpot_p95_s, tpot[4] as tpot_p99_s,
        e2e[1] as e2e_p50_s, e2e[2] as e2e_p90_s, e2e[3] as e2e_p95_s, e2e[4] as e2e_p99_s
    from attained
    left join worst using (trace, day, policy, tier)
    left join placed using (trace, day, tier)
    left join waited using (trace, day, policy, tier)
)

select * from joined
