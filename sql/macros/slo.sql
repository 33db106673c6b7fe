-- slo: the formulas of every metric, in one place (models/metrics.py has those of single requests, a test compares).
-- A request is met if it met every target of its tier. With a ttft_slo_s its first token was within that time;
-- without one its last token was before the deadline. With a tpot_slo_s its TPOT was within that too. A request that
-- was never served is missed. But a request without ttft_slo_s that was still queued at the end of the replay, before
-- its deadline, is pending: neither met nor missed.
-- units: *_s seconds from arrival, queued_s null unless the request was still queued at the end of the replay
create or replace macro is_ttft_met(ttft_s, ttft_slo_s) as
    coalesce(ttft_s <= ttft_slo_s, false);

-- tpot_s is null for a single token, which meets any target
create or replace macro is_tpot_met(tpot_s, e2e_s, tpot_slo_s) as
    coalesce(e2e_s is not null and coalesce(tpot_s <= tpot_slo_s, tpot_slo_s is not null), false);

create or replace macro is_met(ttft_s, tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, deadline_s) as
    if(ttft_slo_s is null, coalesce(e2e_s <= deadline_s, false), is_ttft_met(ttft_s, ttft_slo_s))
    and (tpot_slo_s is null or is_tpot_met(tpot_s, e2e_s, tpot_slo_s));

-- how late a request was: the largest of its values over its targets; above 1 exactly if it is not met; infinity: never served
create or replace macro target_ratio(ttft_s, tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, deadline_s) as
    greatest(
        coalesce(if(ttft_slo_s is null, e2e_s / deadline_s, ttft_s / ttft_slo_s), 'infinity'::double),
        case when tpot_slo_s is null then 0 when e2e_s is null then 'infinity'::double else coalesce(tpot_s / tpot_slo_s, 0) end
    );

create or replace macro is_pending(queued_s, ttft_slo_s, deadline_s) as
    coalesce(ttft_slo_s is null and queued_s < deadline_s, false);

-- met over all decided requests; null if none is decided
create or replace macro attainment_share(met, requests, pending) as
    met / nullif(requests - pending, 0);

-- seconds as percentiles rank them: a decided request that was never served counts as the longest, a pending one not at all
create or replace macro ranked_s(seconds, queued_s, ttft_slo_s, deadline_s) as
    if(is_pending(queued_s, ttft_slo_s, deadline_s), null, coalesce(seconds, 'infinity'::double));

-- a percentile that falls on a request that was never served is null
create or replace macro finite_or_null(percentiles) as
    list_transform(percentiles, lambda value: if(isfinite(value), value, null));

-- p50, p90, p95, p99, linear between ranks
create or replace macro percentiles(seconds) as
    finite_or_null(quantile_cont(seconds, [0.50, 0.90, 0.95, 0.99]));

create or replace macro gpu_hours(instance_s, gpus_per_instance) as
    instance_s * gpus_per_instance / 3600;

-- serving, booting and draining are paid for; a donated instance pays for itself as spot
create or replace macro paid_s(serving_s, booting_s, draining_s) as
    serving_s + booting_s + draining_s;

create or replace macro usd(paid_gpu_hours, usd_per_gpu_hour) as
    paid_gpu_hours * usd_per_gpu_hour;

create or replace macro distance_share(value, best) as
    value / nullif(best, 0) - 1;
