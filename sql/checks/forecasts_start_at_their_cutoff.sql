-- Every forecast covers the hour that begins at its cutoff, and no bucket before its cutoff.
-- grain: trace, day, method, measure, tier, llm, region, bucket_start
-- reads: forecasts
-- units: instants UTC
select trace, day, method, measure, tier, llm, region, cutoff, bucket_start
from forecasts
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    and (
        bucket_start < cutoff
        or bucket_start >= cutoff + interval 1 hour
        or bucket_start::date <> day
    )
