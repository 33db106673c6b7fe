-- parts_of_cost: the parts of the cost of policies, a row per day and part: of one policy and day, or of all of a trace.
-- grain: day, policy, metric
-- reads: regret
-- units: value in US dollars, of regret_share 0 upwards
select day, policy, metric, value
from (
    unpivot (
        select * exclude (trace, usd, boot_usd)
        from regret
        where trace = $trace and day = coalesce($day::date, day) and policy = coalesce($policy, policy)
    )
    on columns(* exclude (day, policy)) into name metric value value
)
