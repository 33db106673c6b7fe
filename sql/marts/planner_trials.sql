-- planner_trials: cost and attainment of a day under each planner, by how much of an instance its plan counts on; a view over trials for one release.
-- grain: trace, day, draw, planner, capacity_share
-- reads: trials
-- units: US dollars, GPU-hours, seconds, shares 0 to 1
-- trace = name of the trace
-- day = UTC
-- planner = who plans (models/world/planners.py)
-- what = the planner in words
-- ideas = of the planners on the way from none of our ideas to all, those that it has; null of others
-- draw = 0: the day as it came; from 1: another draw of its requests within each hour (models/traffic/day_resample.py)
-- capacity_share = of what an instance sustains within its SLO, that the plan counts on (models/plan/target_search.py searches it)
-- usd = cost of the day, as in scoreboard
-- backlog_usd = what the non-interactive requests that nobody had served by midnight would still cost
-- gpu_hours = serving, booting and draining
-- required_ratio = of every target, what is asked of all planners: 1, or less on a day on which none attains that
-- attained_ratio = attainment over its target, of the tier that is furthest below: from 1 on all targets are met
-- worst_tier = that tier
-- required_quality = mean score that [quality] asks; null where it asks none
-- quality = mean score of the answers that count
-- ttft_p95_s = of the strictest tier, to the first token
-- tpot_p95_s = of the tiers with a target for it
-- e2e_p95_s = of the strictest tier, to the last token
-- fluid_usd = a part of the cost
-- rounding_usd = likewise
-- minimum_usd = likewise
-- hour_usd = likewise
-- routing_usd = likewise
-- foresight_usd = likewise
-- boot_usd = likewise
-- scaling_usd = likewise
-- usd_error_share = how far the cost may be off for the error of the latency profiles, 90 of 100 times; null where no hours are planned
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
