-- forecast_by_llm: interactive input tokens/s of all regions: the forecast at the start of the hour and the real demand.
-- grain: trace, day, method, llm, bucket_start
-- reads: forecasts
-- units: *_per_s input tokens per second, mean over the bucket

select
    trace, day, method, llm, bucket_start,
    any_value(bucket_minutes) as bucket_minutes,
    sum(forecast_per_s) as input_tokens_per_s,
    sum(actual_per_s) as actual_input_tokens_per_s
from forecasts
where measure = 'input_tokens' and tier = 'interactive'
group by trace, day, method, llm, bucket_start
