-- advice_forecast: the forecast of an endpoint's next day by hour.
-- grain: hour, llm, region
-- reads: day_ahead_forecasts
-- units: input tokens per second
select
    hour(bucket_start)::bigint as hour, llm, region,
    avg(forecast_per_s) as forecast_tokens_per_s, max(peak_p90_per_s) as p90_tokens_per_s
from day_ahead_forecasts
where trace = $trace and day = $day and method = $method and tier = $tier and measure = 'input_tokens'
group by all
