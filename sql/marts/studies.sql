-- studies: what each policy cost and met under each variant of a study of data/studies, a row per figure.
-- grain: study, variant, policy, metric, tier, llm
-- reads: outcomes, fleet_hours
-- units: value in the unit that the metric names: *_hours hours, *_s seconds, *_share 0 to 1, usd US dollars, requests
-- study = its file in data/studies
-- variant = its table in that file; as_is where it has none
-- policy = under which the fleet was scaled <- outcomes.policy
-- metric = gpu_hours, instance_hours (their integral: serving, booting and draining), quarter_instance_hours (a quarter of the most instances that served or booted in each quarter of an hour, endpoint by endpoint: as SageServe counts), wasted_gpu_hours (booting), usd, kv_utilisation_share (mean of the serving instances); of a tier requests, attainment_share, unfinished (not served in the end), ttft_p50_s, ttft_p75_s, ttft_p95_s, e2e_p50_s, e2e_p95_s
-- tier = urgency class; all for what is not told by tier <- outcomes.tier
-- llm = the served network; all; or, of attainment_share, worst: of the llm that has least <- outcomes.llm
-- value = over all replayed days
with held as (
    select
        policy, coalesce(llm, 'all') as llm,
        sum(gpu_hours(paid_s(serving_s, booting_s, draining_s), gpus_per_instance)) as gpu_hours,
        sum(paid_s(serving_s, booting_s, draining_s)) / 3600 as instance_hours,
        sum(gpu_hours(booting_s, gpus_per_instance)) as wasted_gpu_hours,
        sum(usd(gpu_hours(paid_s(serving_s, booting_s, draining_s), gpus_per_instance), usd_per_gpu_hour)) as usd,
        sum(kv_utilisation_share * gpu_hours(serving_s, gpus_per_instance))
        / nullif(sum(gpu_hours(serving_s, gpus_per_instance)), 0) as kv_utilisation_share
    from fleet_hours
    where policy = $policy
    group by grouping sets ((policy, llm), (policy))
),

met as (
    select
        policy, tier, coalesce(llm, 'all') as llm,
        count(*)::double as requests,
        attainment_share(
            count_if(is_met(ttft_s, tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, deadline_s)),
            count(*),
            count_if(is_pending(queued_s, ttft_slo_s, deadline_s))
        ) as attainment_share,
        count_if(e2e_s is null)::double as unfinished,
        quantile_cont(ttft_s, [0.50, 0.75, 0.95]) as ttft,
        quantile_cont(e2e_s, [0.50, 0.95]) as e2e
    from outcomes
    where policy = $policy
    group by grouping sets ((policy, tier, llm), (policy, tier))
),

named as (
    select
        policy, tier, llm, requests, attainment_share, unfinished,
        ttft[1] as ttft_p50_s, ttft[2] as ttft_p75_s, ttft[3] as ttft_p95_s,
        e2e[1] as e2e_p50_s, e2e[2] as e2e_p95_s
    from met
),

joined as (
    select policy, metric, 'all' as tier, llm, value
    from (unpivot held on columns(* exclude (policy, llm)) into name metric value value)
    union all
    select policy, metric, tier, llm, value
    from (unpivot named on columns(* exclude (policy, tier, llm)) into name metric value value)
    union all
    select policy, 'attainment_share', tier, 'worst', min(attainment_share)
    from named
    where llm <> 'all'
    group by policy, tier
)

select * from joined
order by all
