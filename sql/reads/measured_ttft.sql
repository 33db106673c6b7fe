-- measured_ttft: requests of each tier with a measured TTFT, those within the target, and their P95, as metrics of a trial; of the requests of some hours of the day.
-- grain: tier, metric
-- reads: requests
-- units: requests; seconds
with measured_tiers as (
    select
        tier, count(source_ttft_s)::double as measured,
        count_if(is_ttft_met(source_ttft_s, ttft_slo_s))::double as measured_in_time,
        quantile_cont(source_ttft_s, 0.95)::double as measured_ttft_p95_s
    from requests
    inner join (select unnest($tiers) as tier, unnest($slos_s) as ttft_slo_s) using (tier)
    where trace = $trace and day = $day and source_ttft_s is not null
        and list_contains($hours, hour(arrived_at))
    group by tier
)

from (unpivot measured_tiers on columns(* exclude (tier)) into name metric value value)
order by all
