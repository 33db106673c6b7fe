-- autoscaler_samples: requests of each endpoint in each sample of an autoscaler.
-- grain: llm, region, sample
-- reads: requests
-- units: requests
select
    llm, region,
    floor(epoch(arrived_at - $day::timestamptz) / $sample_s)::bigint as sample,
    count(*) as requests
from requests
where trace = $trace and day = $day::date and list_contains($tiers, tier)
group by all
