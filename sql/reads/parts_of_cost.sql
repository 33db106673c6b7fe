-- parts_of_cost: the parts of a policy's cost on a day, a row per part.
-- grain: metric
-- reads: regret
-- units: value in US dollars, of regret_share 0 upwards
select metric, value
from (
    unpivot (
        select * exclude (trace, day, policy, usd, boot_usd)
        from regret
        where trace = $trace and day = $day and policy = $policy
    )
    on * into name metric value value
)
