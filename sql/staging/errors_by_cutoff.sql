-- Absolute error of each method at each cutoff over all series of a trace and tier, the input of paired_bootstrap.
-- grain: horizon_minutes, method, cutoff
-- reads: backtests
-- units: error input tokens/s, summed over series and the buckets within the horizon
with horizons as (
    select unnest([10, 60, 120]) as horizon_minutes
)

select
    horizon_minutes, method, cutoff,
    sum(abs(forecast_per_s - actual_per_s)) as error
from backtests
inner join horizons
    on bucket_start + to_minutes(bucket_minutes) <= cutoff + to_minutes(horizon_minutes)
where trace = $trace and tier = $tier and actual_per_s is not null
group by horizon_minutes, method, cutoff
order by horizon_minutes, method, cutoff
