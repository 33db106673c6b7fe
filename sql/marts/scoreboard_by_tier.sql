-- scoreboard_by_tier: what every tier met under each policy of a day, by all its targets and by each alone.
-- grain: trace, day, policy, tier
-- reads: tier_attainment, outcomes
-- units: requests, *_share 0 to 1, *_s seconds; percentiles over the requests that got that far
-- is_held = whether the queue manager may hold the tier's requests; the others are interactive
-- place = of the tier, from 1: interactive tiers come first, then those with the shortest targets
-- is_strictest = whether it is the interactive tier with the shortest TTFT target, then TPOT target; never true without one
-- attainment_share = requests that met all targets of the tier (sql/macros/slo.sql)
-- worst_llm_attainment_share = the same, of the llm that met its SLO least often
-- ttft_attainment_share = whose first token came in time; null where the tier has no such target
-- tpot_attainment_share = whose tokens came fast enough; null where the tier has no such target
-- pending = requests without a TTFT target that still waited at the end with their deadline ahead
with waited as (
    select
        trace, day, policy, tier,
        percentiles(ttft_s) as ttft,
        percentiles(tpot_s) as tpot
    from outcomes
    anti join days_of_many() using (trace, day, policy)
    group by trace, day, policy, tier
    union all
    select
        trace, day, policy, whom as tier,
        any_value(percentiles) filter (where measure = 1) as ttft,
        any_value(percentiles) filter (where measure = 2) as tpot
    from percentiles_of_day([ttft_s, tpot_s], tier)
    group by trace, day, policy, whom
),

joined as (
    select
        tier_attainment.*,
        ttft[1] as ttft_p50_s, ttft[2] as ttft_p90_s, ttft[3] as ttft_p95_s, ttft[4] as ttft_p99_s,
        tpot[1] as tpot_p50_s, tpot[2] as tpot_p90_s, tpot[3] as tpot_p95_s, tpot[4] as tpot_p99_s
    from tier_attainment
    left join waited using (trace, day, policy, tier)
)

select * from joined
