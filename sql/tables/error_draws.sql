-- error_draws: the figures of the scoreboard in worlds whose latencies are off by the error of their profiles.
-- grain: trace, day, policy, draw, figure
-- reads: error_draws
-- units: those of the figure in scoreboard
-- trace = name of the trace <- outcomes.trace
-- day = UTC <- outcomes.day
-- policy = who scaled the fleet <- outcomes.policy
-- draw = of the latencies, the same for all policies (models/latency/error.py); 0 are the profiles as they are
-- figure = a column of scoreboard
-- value = of the figure
select * from error_draws
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
