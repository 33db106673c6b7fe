-- scoreboard: cost, SLO attainment and cost above the clairvoyant plan of a day, one row per policy; written when the day is scored.
-- grain: trace, day, policy
-- reads: scorecard, tier_attainment, tier_places, outcomes, fleet_by_hour, left_over
-- units: *_gpu_hours GPU-hours, usd US dollars, *_share 0 to 1, ttft_p95_s, e2e_p95_s and tpot_p95_s seconds
-- is_hindsight = whether the policy plans from the true demand of the day: no fleet can run it
-- strictest_tier = the interactive tier with the shortest TTFT target, then TPOT target; null where none has one
-- attainment_share = share of requests that met all their targets (sql/macros/slo.sql); of the strictest tier
-- worst_llm_attainment_share = the same for the llm with the lowest attainment
-- pending = requests without a TTFT target that were still queued at the end, before their deadline
-- ttft_p95_s = time to first token, 95th percentile; of the strictest tier; null where more than 5 % of its requests were never served
-- e2e_p95_s = time to the last token, 95th percentile; of the strictest tier; see ttft_p95_s
-- tpot_p95_s = time per output token after the first, 95th percentile; of the tiers with a TPOT target, null where no tier has one
-- quality = mean score of the final answers; null where [quality] has no answers for this trace
-- instance_hours = instance-hours of the same states, whatever the size of the instances
-- backlog_gpu_hours = GPU-hours that the non-interactive requests not served by midnight would still need
-- over_clairvoyant_share = GPU-hours and backlog_gpu_hours above those of the clairvoyant policy; null if it was not replayed
-- usd = cost of the instances: serving, booting and draining
with attained as (
    select
        trace, day, policy,
        sum(requests)::bigint as requests,
        attainment_share(
            sum(ttft_met),
            sum(requests) filter (where ttft_met is not null),
            sum(pending) filter (where ttft_met is not null)
        ) as ttft_attainment_share,
        attainment_share(
            sum(tpot_met),
            sum(requests) filter (where tpot_met is not null),
            sum(pending) filter (where tpot_met is not null)
        ) as tpot_attainment_share,
        1 - attainment_share(
            sum(met) filter (where not may_wait(is_held, tier)),
            sum(requests) filter (where not may_wait(is_held, tier)),
            sum(pending) filter (where not may_wait(is_held, tier))
        ) as missed_share,
        sum(missed)::bigint as missed,
        sum(pending)::bigint as pending,
        sum(preemptions)::bigint as preemptions
    from scorecard
    group by trace, day, policy
),

by_tier as (
    select
        trace, day, policy,
        map_from_entries(list({'tier': tier, 'share': attainment_share} order by place)) as attainment_by_tier,
        any_value(tier) filter (where is_strictest) as strictest_tier,
        any_value(attainment_share) filter (where is_strictest) as attainment_share,
        any_value(worst_llm_attainment_share) filter (where is_strictest) as worst_llm_attainment_share
    from tier_attainment
    group by trace, day, policy
),

waited as (
    select
        trace, day, policy,
        percentiles(ranked_s(ttft_s, queued_s, ttft_slo_s, deadline_s))[3] as ttft_p95_s,
        percentiles(ranked_s(e2e_s, queued_s, ttft_slo_s, deadline_s))[3] as e2e_p95_s
    from outcomes
    inner join (select trace, day, tier from tier_places where is_strictest) using (trace, day, tier)
    inner join days_by_size() using (trace, day, policy)
    where not is_of_many
    group by trace, day, policy
    union all
    select
        trace, day, policy,
        any_value(percentiles[3]) filter (where measure = 1) as ttft_p95_s,
        any_value(percentiles[3]) filter (where measure = 2) as e2e_p95_s
    from percentiles_of_day(
        [ranked_s(ttft_s, queued_s, ttft_slo_s, deadline_s), ranked_s(e2e_s, queued_s, ttft_slo_s, deadline_s)], tier
    )
    inner join (select trace, day, tier as subject from tier_places where is_strictest) using (trace, day, subject)
    group by trace, day, policy
),

paced as (
    select trace, day, policy, percentiles(tpot_s)[3] as tpot_p95_s
    from outcomes
    inner join days_by_size() using (trace, day, policy)
    where not is_of_many and tpot_slo_s is not null
    group by trace, day, policy
    union all
    select trace, day, policy, any_value(percentiles[3]) as tpot_p95_s
    from percentiles_of_day([if(tpot_slo_s is null, null, tpot_s)], true)
    group by trace, day, policy
),

scored as (
    -- A day without outcomes has no row here: its backlog is unknown, not 0.
    select trace, day, policy, avg(score) as quality, 0.0 as without_backlog
    from outcomes
    group by trace, day, policy
),

cost as (
    select
        trace, day, policy,
        sum(paid_gpu_hours) as gpu_hours,
        sum(paid_gpu_hours / gpus_per_instance) as instance_hours,
        sum(wasted_gpu_hours) as wasted_gpu_hours,
        sum(donated_gpu_hours) as donated_gpu_hours,
        sum(usd) as usd,
        sum(boot_usd) as boot_usd,
        sum(kv_utilisation_share * serving_gpu_hours) / nullif(sum(serving_gpu_hours), 0) as kv_utilisation_share
    from fleet_by_hour
    group by trace, day, policy
),

left_behind as (
    select trace, day, policy, sum(backlog_gpu_hours) as backlog_gpu_hours
    from left_over
    group by trace, day, policy
)

select
    * exclude (without_backlog) replace (coalesce(backlog_gpu_hours, without_backlog) as backlog_gpu_hours),
    starts_with(policy, 'clairvoyant') as is_hindsight,
    distance_share(
        gpu_hours + coalesce(backlog_gpu_hours, without_backlog),
        max(gpu_hours + coalesce(backlog_gpu_hours, without_backlog)) filter (where policy = 'clairvoyant')
            over (partition by trace, day)
    ) as over_clairvoyant_share
from attained
left join by_tier using (trace, day, policy)
left join left_behind using (trace, day, policy)
left join waited using (trace, day, policy)
left join paced using (trace, day, policy)
left join scored using (trace, day, policy)
inner join cost using (trace, day, policy)
