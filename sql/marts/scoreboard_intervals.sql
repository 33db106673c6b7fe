-- scoreboard_intervals: uncertainty of the scoreboard from errors of the latency profiles.
-- grain: trace, day, policy, figure
-- reads: error_draws
-- units: those of the column in scoreboard
-- figure = a column of scoreboard
-- value = value in the scoreboard at the time of the sampling
-- low = 5 % quantile over the samples of the latency errors, linear between ranks
-- high = 95 % quantile, likewise
-- draws = number of samples of the latency errors
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
