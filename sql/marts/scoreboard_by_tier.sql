-- scoreboard_by_tier: attainment of every tier under each policy of a day, by all its targets and by each target.
-- grain: trace, day, policy, tier
-- reads: tier_attainment, outcomes
-- units: requests, *_share 0 to 1, *_s seconds; TTFT percentiles over the decided requests: null where one falls on a request that was never served
-- place = rank, from 1: interactive tiers first, then those with the shortest targets
-- is_strictest = whether it is the interactive tier with the shortest TTFT target, then TPOT target; false for a tier without one
-- worst_llm_attainment_share = the same for the llm with the lowest attainment
-- pending = requests without a TTFT target that were still queued at the end, before their deadline
with waited as (
    select
        trace, day, policy, tier,
        percentiles(ranked_s(ttft_s, queued_s, ttft_slo_s, deadline_s)) as ttft,
        percentiles(tpot_s) as tpot
    from outcomes
    inner join days_by_size() using (trace, day, policy)
    where not is_of_many
    group by trace, day, policy, tier
    union all
    select
        trace, day, policy, subject as tier,
        any_value(percentiles) filter (where measure = 1) as ttft,
        any_value(percentiles) filter (where measure = 2) as tpot
    from percentiles_of_day([ranked_s(ttft_s, queued_s, ttft_slo_s, deadline_s), tpot_s], tier)
    group by trace, day, policy, subject
)

select
    tier_attainment.*,
    ttft[1] as ttft_p50_s, ttft[2] as ttft_p90_s, ttft[3] as ttft_p95_s, ttft[4] as ttft_p99_s,
    tpot[1] as tpot_p50_s, tpot[2] as tpot_p90_s, tpot[3] as tpot_p95_s, tpot[4] as tpot_p99_s
from tier_attainment
left join waited using (trace, day, policy, tier)
