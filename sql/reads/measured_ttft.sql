-- measured_ttft: requests of each tier with a measured TTFT, and those within the target.
-- grain: tier
-- reads: requests
-- units: requests; seconds
select
    tier, count(source_ttft_s) as measured,
    count_if(is_ttft_met(source_ttft_s, ttft_slo_s)) as measured_in_time,
    quantile_cont(source_ttft_s, 0.95) as measured_ttft_p95_s
from requests
inner join (select unnest($tiers) as tier, unnest($slos_s) as ttft_slo_s) using (tier)
where trace = $trace and day = $day and source_ttft_s is not null
group by tier
