-- advice_tiers: attainment of each tier under one policy on one day.
-- grain: tier
-- reads: scorecard
-- units: share
select tier, attainment_share(sum(met), sum(requests), sum(pending)) as in_time_share
from scorecard
where trace = $trace and day = $day and policy = $policy
group by tier
order by tier
