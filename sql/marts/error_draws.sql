-- error_draws: the scoreboard on sampled latencies, which are off by the error of their profiles; a view over trials for one release.
-- grain: trace, day, policy, draw, figure
-- reads: trials
-- units: those of the column in scoreboard
-- trace = name of the trace <- trials.trace
-- day = UTC <- trials.day
-- policy = the scaling policy <- trials.policy
-- draw = number of the sample: of latency errors, the same for all policies (models/latency/latency_errors.py); 0: the profiles without error <- trials.draw
-- figure = a column of scoreboard, or TIER_attainment_share <- trials.metric
-- value = value of the figure or metric <- trials.value
select
    trace, day, policy, draw,
    case
        when llm = 'worst' then 'worst_llm_attainment_share'
        when metric = 'attainment_share' then tier || '_attainment_share'
        else metric
    end as figure,
    value
from trials
where experiment = 'error' and (
    (metric = 'attainment_share' and llm = 'all')
    or (metric = 'attainment_share' and llm = 'worst' and tier = labels['tier'])
    or (metric = 'ttft_p95_s' and llm = 'all' and tier = labels['tier'])
    or (metric in ('missed_share', 'gpu_hours', 'usd') and llm = 'all')
)
