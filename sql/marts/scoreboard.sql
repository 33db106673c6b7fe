-- scoreboard: one row per policy: what a day cost, what it missed, and how far from the clairvoyant it was.
-- grain: trace, day, policy
-- reads: scorecard, outcomes, fleet_by_hour, left_over
-- units: *_gpu_hours GPU-hours, usd US dollars, *_share 0 to 1, ttft_p95_s, e2e_p95_s and tpot_p95_s seconds
-- *_attainment_share = requests of the tier that met all its targets (sql/macros/slo.sql); scoreboard_by_tier has every tier
-- worst_llm_attainment_share = of iw_fast, of the llm that met its SLO least often
-- ttft_attainment_share = of the tiers with a TTFT target, whose first token came in time, whatever their pace
-- tpot_attainment_share = of the tiers with a target for time per output token, whose tokens came so fast; null where none has one
-- missed_share = interactive requests that missed their SLO
-- pending = requests without a TTFT target that still waited at the end with their deadline ahead
-- ttft_p95_s = of iw_fast; null in a trace without it
-- e2e_p95_s = of iw_fast, to the last token; null in a trace without it
-- tpot_p95_s = of the tiers with a target for time per output token; null where none has one
-- quality = mean score of the answers that count; null where [quality] does not say whose answers these are
-- gpu_hours = serving, booting and draining
-- instance_hours = of the same time, of instances of whatever size
-- wasted_gpu_hours = booting
-- boot_usd = what that cost
-- left_gpu_hours = what the non-interactive requests that nobody had served by midnight would still take (left_over)
-- kv_utilisation_share = mean of the serving instances' KV memory, weighted by GPU-hours
-- over_clairvoyant_share = GPU-hours and left_gpu_hours above those of the clairvoyant; null when it was not replayed
with attained as (
    select
        trace, day, policy,
        sum(requests)::bigint as requests,
        attainment_share(
            sum(met) filter (where tier = 'iw_fast'),
            sum(requests) filter (where tier = 'iw_fast'),
            sum(pending) filter (where tier = 'iw_fast')
        ) as iw_fast_attainment_share,
        attainment_share(
            sum(met) filter (where tier = 'iw_normal'),
            sum(requests) filter (where tier = 'iw_normal'),
            sum(pending) filter (where tier = 'iw_normal')
        ) as iw_normal_attainment_share,
        attainment_share(
            sum(met) filter (where tier = 'niw'),
            sum(requests) filter (where tier = 'niw'),
            sum(pending) filter (where tier = 'niw')
        ) as niw_attainment_share,
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

of_llms as (
    select trace, day, policy, attainment_share(sum(met), sum(requests), sum(pending)) as share
    from scorecard
    where tier = 'iw_fast'
    group by trace, day, policy, llm
),

worst as (
    select trace, day, policy, min(share) as worst_llm_attainment_share
    from of_llms
    group by trace, day, policy
),

waited as (
    select
        trace, day, policy,
        percentiles(if(tier = 'iw_fast', ttft_s, null))[3] as ttft_p95_s,
        percentiles(if(tier = 'iw_fast', e2e_s, null))[3] as e2e_p95_s,
        percentiles(if(tpot_slo_s is null, null, tpot_s))[3] as tpot_p95_s
    from outcomes
    anti join days_of_many() using (trace, day, policy)
    where tier = 'iw_fast' or tpot_slo_s is not null
    group by trace, day, policy
    union all
    select
        trace, day, policy,
        any_value(percentiles[3]) filter (where measure = 1) as ttft_p95_s,
        any_value(percentiles[3]) filter (where measure = 2) as e2e_p95_s,
        any_value(percentiles[3]) filter (where measure = 3) as tpot_p95_s
    from
        percentiles_of_day(
            [if(tier = 'iw_fast', ttft_s, null), if(tier = 'iw_fast', e2e_s, null), if(tpot_slo_s is null, null, tpot_s)],
            true
        )
    group by trace, day, policy
),

scored as (
    select trace, day, policy, avg(score) as quality
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
    select trace, day, policy, sum(gpu_hours) as left_gpu_hours
    from left_over
    group by trace, day, policy
),

joined as (
    select
        * replace (coalesce(left_gpu_hours, 0) as left_gpu_hours),
        distance_share(
            gpu_hours + coalesce(left_gpu_hours, 0),
            max(gpu_hours + coalesce(left_gpu_hours, 0)) filter (where policy = 'clairvoyant')
                over (partition by trace, day)
        ) as over_clairvoyant_share
    from attained
    left join worst using (trace, day, policy)
    left join left_behind using (trace, day, policy)
    left join waited using (trace, day, policy)
    left join scored using (trace, day, policy)
    inner join cost using (trace, day, policy)
)

select * from joined
