-- scoreboard_intervals: uncertainty of the scoreboard from errors of the latency profiles.
-- grain: trace, day, policy, figure
-- reads: error_draws
-- units: those of the column in scoreboard
-- value = value of the figure or metric; in the scoreboard at the time of the sampling
-- low = lower end of its 90 % interval: the 5 % quantile over the samples of the latency errors, linear between ranks
-- high = upper end of its 90 % interval: the 95 % quantile, likewise
-- draws = number of samples of the latency errors
-- is_value_inside = whether low to high holds the value; it need not: a policy is planned with the profiles, so most errors of them move a figure like its attainment the same way
with summarised as (
    select
        trace,
        day,
        policy,
        figure,
        max(value) filter (where draw = 0) as value,
        quantile_cont(value, 0.05) filter (where draw > 0) as low,
        quantile_cont(value, 0.95) filter (where draw > 0) as high,
        count(*) filter (where draw > 0) as draws
    from error_draws
    group by trace, day, policy, figure
)

select *, is_inside(value, low, high) as is_value_inside
from summarised
