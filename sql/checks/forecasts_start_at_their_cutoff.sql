-- Every forecast covers the hour that begins at its cutoff, and nothing that was known by then.
-- grain: trace, day, method, llm, region, bucket_start
-- reads: forecasts
-- units: input tokens per second
select trace, day, method, llm, region, cutoff, bucket_start
from forecasts
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    and (
        bucket_start < cutoff
        or bucket_start >= cutoff + interval 1 hour
        or bucket_start::date <> day
    )
