-- studies: what each policy cost and met under each variant of a study of data/studies, a row per figure.
-- grain: study, variant, policy, metric, tier, llm
-- reads: outcomes, fleet_hours, left_over
-- units: value in the unit that the metric names: *_hours hours, *_s seconds, *_share 0 to 1, usd US dollars, requests
-- study = its file in data/studies
-- variant = its table in that file; as_is where it has none
-- policy = under which the fleet was scaled <- outcomes.policy
-- metric = gpu_hours, instance_hours (their integral: serving, booting and draining), quarter_instance_hours (a quarter of the most instances that served or booted in each quarter of an hour, endpoint by endpoint: as SageServe counts), wasted_gpu_hours (booting), left_gpu_hours (what held requests would still take that nobody had taken at the midnight at which a replay ends; no row where there are none), usd, kv_utilisation_share (mean of the serving instances); of a tier requests, attainment_share, unfinished (not served in the end), ttft_p50_s, ttft_p75_s, ttft_p95_s, e2e_p50_s, e2e_p95_s
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

waiting as (
    select policy, day, served_llm as llm, sum(input_tokens) as input_tokens
    from outcomes
    where policy = $policy and may_wait(is_held, tier) and status <> 'refused'
        and still_waits(
            arrived_at, earlier_s, held_s,
            if($in_one_go, (select max(day) from fleet_hours), day) + interval 1 day
        )
    group by policy, day, served_llm
),

left_to_do as (
    select
        policy, coalesce(llm, 'all') as llm,
        sum(gpu_hours * waiting.input_tokens / left_over.input_tokens) as left_gpu_hours
    from waiting
    inner join left_over using (policy, day, llm)
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
    select policy, 'left_gpu_hours', 'all', llm, left_gpu_hours
    from left_to_do
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
