-- scoreboard_differences: which differences between policies outlast the error of the latency profiles.
-- grain: trace, day, policy, against, figure
-- reads: error_draws
-- units: those of the figure in scoreboard
-- against = the policy that is compared with, in the same draws of the latencies
-- figure = a column of scoreboard
-- difference = figure of policy above that of against
-- low = a twentieth of the draws of the latencies lies below it, linear between ranks
-- high = likewise above it
-- is_carried = low and high lie on the side of 0 on which difference lies: the error does not turn it round
with compared as (
    select
        ours.trace,
        ours.day,
        ours.policy,
        theirs.policy as against,
        ours.figure,
        max(ours.value - theirs.value) filter (where draw = 0) as difference,
        quantile_cont(ours.value - theirs.value, 0.05) filter (where draw > 0) as low,
        quantile_cont(ours.value - theirs.value, 0.95) filter (where draw > 0) as high
    from error_draws as ours
    inner join error_draws as theirs using (trace, day, figure, draw)
    where ours.policy <> theirs.policy
    group by all
)

select
    *,
    (difference > 0 and low > 0) or (difference < 0 and high < 0) as is_carried
from compared
