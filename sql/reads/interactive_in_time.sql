-- interactive_in_time: requests of each tier that are not held, and those with their TTFT in time.
-- grain: tier
-- reads: scorecard
-- units: requests
select
    tier, sum(requests)::bigint as requests, sum(ttft_met)::bigint as in_time
from scorecard
where not is_held
group by tier
