-- advice_history: interactive input tokens/s by hour.
-- grain: hour_start
-- reads: demand
-- units: tokens per second
select date_trunc('hour', bucket_start) as hour_start, sum(input_tokens)::double / 3600 as tokens_per_s
from demand
where trace = $trace and list_contains($tiers, tier) and day between $first and $last
group by all
order by all
