-- advice_ran_attainment: share of requests within their TTFT target on the fleet that ran.
-- grain: one row
-- reads: shadow_runs
-- units: share
select sum(in_time)::double / sum(requests) as share
from shadow_runs
where trace = $trace and day = $day and fleet = 'ran'
