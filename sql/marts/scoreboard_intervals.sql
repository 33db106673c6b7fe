-- scoreboard_intervals: how far the figures of the scoreboard may be off because the latency profiles are.
-- grain: trace, day, policy, figure
-- reads: error_draws
-- units: those of the figure in scoreboard
-- figure = a column of scoreboard
-- value = as in scoreboard, when the latencies were drawn
-- low = a twentieth of the draws of the latencies lies below it, linear between ranks
-- high = likewise above it
-- draws = of the latencies
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
