-- trial_figures: cost and attainment of a policy in a lake, a row per metric: over all days, of one trace and day, or by day.
-- grain: policy, of_day, metric, tier, llm
-- reads: outcomes, fleet_hours, left_over
-- units: value in the unit that the metric names; see sql/tables/trials.sql for each metric
-- of_day = the day of the figure with $by_day, else null: all days together
with of_fleet as (
    select *, if($by_day, day, null) as of_day from fleet_hours
    where policy = $policy and trace = coalesce($trace, trace) and day = coalesce($day::date, day)
),

of_requests as (
    select *, if($by_day, day, null) as of_day from outcomes
    where policy = $policy and trace = coalesce($trace, trace) and day = coalesce($day::date, day)
),

of_left_over as (  -- without this filter, all policies and days of the lake are read
    select * from left_over
    where policy = $policy and trace = coalesce($trace, trace) and day = coalesce($day::date, day)
),

held as (
    select
        policy, of_day, coalesce(llm, 'all') as llm,
        sum(gpu_hours(paid_s(serving_s, booting_s, draining_s), gpus_per_instance)) as gpu_hours,
        sum(paid_s(serving_s, booting_s, draining_s)) / 3600 as instance_hours,
        sum(gpu_hours(booting_s, gpus_per_instance)) as wasted_gpu_hours,
        sum(usd(gpu_hours(booting_s, gpus_per_instance), usd_per_gpu_hour)) as boot_usd,
        sum(usd(gpu_hours(paid_s(serving_s, booting_s, draining_s), gpus_per_instance), usd_per_gpu_hour)) as usd,
        sum(kv_utilisation_share * gpu_hours(serving_s, gpus_per_instance))
        / nullif(sum(gpu_hours(serving_s, gpus_per_instance)), 0) as kv_utilisation_share
    from of_fleet
    group by grouping sets ((policy, of_day, llm), (policy, of_day))
),

dearest as (
    select policy, of_day, max(usd) as usd
    from (
        select
            policy, of_day, hour_start,
            sum(usd(gpu_hours(paid_s(serving_s, booting_s, draining_s), gpus_per_instance), usd_per_gpu_hour)) as usd
        from of_fleet
        group by policy, of_day, hour_start
    )
    group by policy, of_day
),

waiting as (
    select trace, policy, of_day, day, served_llm as llm, sum(input_tokens) as input_tokens
    from of_requests
    where may_wait(is_held, tier) and status <> 'refused'
        and still_waits(
            arrived_at, earlier_s, held_s,
            if($in_one_go, (select max(day) from fleet_hours), day) + interval 1 day
        )
    group by trace, policy, of_day, day, served_llm
),

left_to_do as (
    select
        policy, of_day, coalesce(llm, 'all') as llm,
        sum(backlog_gpu_hours * waiting.input_tokens / left_over.input_tokens) as backlog_gpu_hours
    from waiting
    inner join of_left_over as left_over using (trace, policy, day, llm)
    group by grouping sets ((policy, of_day, llm), (policy, of_day))
),

met as (
    select
        policy, of_day, tier, coalesce(llm, 'all') as llm,
        count(*)::double as requests,
        attainment_share(
            count_if(is_met(ttft_s, tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, deadline_s)),
            count(*),
            count_if(is_pending(queued_s, ttft_slo_s, deadline_s))
        ) as attainment_share,
        count_if(e2e_s is null)::double as unfinished,
        if(
            count(ttft_slo_s) > 0,
            attainment_share(
                count_if(is_ttft_met(ttft_s, ttft_slo_s)),
                count(*),
                count_if(is_pending(queued_s, ttft_slo_s, deadline_s))
            ),
            null
        ) as ttft_attainment_share,
        finite_or_null(quantile_cont(ranked_s(ttft_s, queued_s, ttft_slo_s, deadline_s), [0.50, 0.75, 0.95])) as ttft,
        finite_or_null(quantile_cont(ranked_s(e2e_s, queued_s, ttft_slo_s, deadline_s), [0.50, 0.95])) as e2e
    from of_requests
    group by grouping sets ((policy, of_day, tier, llm), (policy, of_day, tier))
),

whole as (
    select
        policy, of_day,
        1 - attainment_share(
            count_if(is_met(ttft_s, tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, deadline_s))
                filter (where not may_wait(is_held, tier)),
            count(*) filter (where not may_wait(is_held, tier)),
            count_if(is_pending(queued_s, ttft_slo_s, deadline_s)) filter (where not may_wait(is_held, tier))
        ) as missed_share,
        quantile_cont(tpot_s, 0.95) filter (where tpot_slo_s is not null) as tpot_p95_s,
        avg(score) as quality
    from of_requests
    group by policy, of_day
),

named as (
    select
        policy, of_day, tier, llm, requests, attainment_share, ttft_attainment_share, unfinished,
        ttft[1] as ttft_p50_s, ttft[2] as ttft_p75_s, ttft[3] as ttft_p95_s,
        e2e[1] as e2e_p50_s, e2e[2] as e2e_p95_s
    from met
)

select policy, of_day, metric, 'all' as tier, llm, value
from (unpivot held on columns(* exclude (policy, of_day, llm)) into name metric value value)
union all
select policy, of_day, 'dearest_hour_usd', 'all', 'all', usd
from dearest
union all
select policy, of_day, metric, 'all', 'all', value
from (unpivot whole on columns(* exclude (policy, of_day)) into name metric value value)
union all
select policy, of_day, 'backlog_gpu_hours', 'all', llm, backlog_gpu_hours
from left_to_do
union all
select policy, of_day, metric, tier, llm, value
from (unpivot named on columns(* exclude (policy, of_day, tier, llm)) into name metric value value)
union all
select policy, of_day, 'attainment_share', tier, 'worst', min(attainment_share)
from named
where llm <> 'all'
group by policy, of_day, tier
order by all
