-- No engine changed its speed or its cache hits, or left the error of its latency profile.
-- grain: trace, day, llm, served_region, part
-- reads: witnessed
-- units: factors of the profile's seconds; shares of the prompt tokens for cache hits
-- Calibrate again after a change that stays: fleetcast calibrate. Nights of the new profile are compared anew.
select trace, day, llm, served_region, part, verdict, cause, ratio, usual_ratio, allowed_factor, changed_at
from witnessed
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    and verdict in ('changed', 'off profile')
