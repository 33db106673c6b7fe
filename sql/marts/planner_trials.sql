-- planner_trials: cost and attainment of a day under each planner, by capacity share; a view over trials for one release.
-- grain: trace, day, draw, planner, capacity_share
-- reads: trials
-- units: US dollars, GPU-hours, seconds, shares 0 to 1
-- trace = name of the trace
-- day = UTC
-- planner = the planner (models/world/planners.py)
-- what = description of the planner
-- ideas = the ideas of the planner, for the planners between none of fleetcast's ideas and all; null for other planners
-- draw = number of the sample: 0 is the real day; from 1 a resample of its requests within each hour (models/traffic/day_resample.py)
-- capacity_share = share of an instance's capacity within its SLO that the plan uses (models/plan/target_search.py searches it)
-- usd = cost of the day, as in scoreboard
-- backlog_usd = remaining cost of the non-interactive requests that were not served by midnight
-- gpu_hours = serving, booting and draining
-- required_ratio = required fraction of every target, for all planners: 1, or less on a day when no planner reaches it
-- attained_ratio = attainment over target of the tier that is furthest below its target; all targets are met from 1
-- worst_tier = the tier of attained_ratio
-- required_quality = mean score that [quality] requires; null without a requirement
-- quality = mean score of the final answers
-- ttft_p95_s = time to first token, strictest tier
-- tpot_p95_s = time per output token, tiers with a TPOT target
-- e2e_p95_s = time to the last token, strictest tier
-- fluid_usd = part of the cost, see regret
-- rounding_usd = part of the cost, see regret
-- minimum_usd = part of the cost, see regret
-- hour_usd = part of the cost, see regret
-- routing_usd = part of the cost, see regret
-- foresight_usd = part of the cost, see regret
-- boot_usd = part of the cost, see regret
-- scaling_usd = part of the cost, see regret
-- usd_error_share = error of the cost from errors of the latency profiles, in 90 of 100 cases; null without an hourly plan
select
    trace, day, variant as planner, any_value(labels['what']) as what, any_value(labels['ideas']) as ideas,
    resample::bigint as draw, knobs['capacity_share'] as capacity_share,
    max(value) filter (where metric = 'usd')                        as usd,
    max(value) filter (where metric = 'backlog_usd')                   as backlog_usd,
    max(value) filter (where metric = 'gpu_hours')                  as gpu_hours,
    max(value) filter (where metric = 'required_ratio')                as required_ratio,
    min(value) filter (where metric = 'attained_ratio')             as attained_ratio,
    max(value) filter (where metric = 'required_quality')              as required_quality,
    max(value) filter (where metric = 'quality')                    as quality,
    arg_min(tier, value) filter (where metric = 'attained_ratio')   as worst_tier,
    max(value) filter (where metric = 'ttft_p95_s' and tier = labels['tier']) as ttft_p95_s,
    max(value) filter (where metric = 'tpot_p95_s')                 as tpot_p95_s,
    max(value) filter (where metric = 'e2e_p95_s' and tier = labels['tier']) as e2e_p95_s,
    max(value) filter (where metric = 'fluid_usd')                  as fluid_usd,
    max(value) filter (where metric = 'rounding_usd')               as rounding_usd,
    max(value) filter (where metric = 'minimum_usd')                as minimum_usd,
    max(value) filter (where metric = 'hour_usd')                   as hour_usd,
    max(value) filter (where metric = 'routing_usd')                as routing_usd,
    max(value) filter (where metric = 'foresight_usd')              as foresight_usd,
    max(value) filter (where metric = 'boot_usd')                   as boot_usd,
    max(value) filter (where metric = 'scaling_usd')                as scaling_usd,
    max(value) filter (where metric = 'usd_error_share')            as usd_error_share
from trials
where experiment = 'board' and llm = 'all'
group by trace, day, variant, resample, knobs['capacity_share']
