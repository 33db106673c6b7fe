-- advice_midnight_forecasts: each hour as it was forecast at midnight, and as it came, of several days.
-- grain: day, hour, llm, region
-- reads: day_ahead_forecasts
-- units: input tokens per second; peaks are those of the largest bucket of the hour
select
    day, hour(bucket_start)::bigint as hour, llm, region,
    avg(forecast_per_s) as forecast_tokens_per_s, avg(actual_per_s) as actual_tokens_per_s,
    max(peak_p50_per_s) as peak_p50_tokens_per_s, max(peak_p90_per_s) as peak_p90_tokens_per_s
from day_ahead_forecasts
where trace = $trace and list_contains($days, day) and method = $method and tier = $tier and measure = 'input_tokens'
group by all
