-- scoreboard_differences: the differences between policies that are significant given the error of the latency profiles.
-- grain: trace, day, policy, against, figure
-- reads: error_draws
-- units: those of the column in scoreboard
-- against = what the row is compared with: the other policy, on the same samples of the latency errors
-- difference = figure of policy less figure of against
-- low = lower end of its 90 % interval: the 5 % quantile over the samples of the latency errors, linear between ranks
-- high = upper end of its 90 % interval: the 95 % quantile, likewise
-- is_carried = whether low and high have the sign of difference: the error does not reverse it
with compared as (
    select
        own.trace,
        own.day,
        own.policy,
        other.policy as against,
        own.figure,
        max(own.value - other.value) filter (where draw = 0) as difference,
        quantile_cont(own.value - other.value, 0.05) filter (where draw > 0) as low,
        quantile_cont(own.value - other.value, 0.95) filter (where draw > 0) as high
    from error_draws as own
    inner join error_draws as other using (trace, day, figure, draw)
    where own.policy <> other.policy
    group by all
)

select
    *,
    (difference > 0 and low > 0) or (difference < 0 and high < 0) as is_carried
from compared
