-- planner_trials: cost and attainment of a day under each planner, by its knob; a view over trials for one release.
-- grain: trace, day, draw, planner, factor
-- reads: trials
-- units: US dollars, GPU-hours, seconds, shares 0 to 1
-- trace = name of the trace
-- day = UTC
-- ideas = the ideas of the planner, for the planners between none of fleetcast's ideas and all; null for other planners
-- draw = number of the sample: 0 is the real day; from 1 a resample of its requests within each hour (models/traffic/day_resample.py)
-- required_quality = required mean score; null without [quality]
-- ttft_p95_s = time to first token, 95th percentile; of the strictest tier
-- tpot_p95_s = time per output token after the first, 95th percentile; of the tiers with a TPOT target, null where no tier has one
-- e2e_p95_s = time to the last token, 95th percentile; of the strictest tier
-- usd_error_share = error of the cost from errors of the latency profiles, in 90 of 100 cases, by what each llm cost
select
    trace, day, variant as planner, any_value(labels['what']) as what, any_value(labels['ideas']) as ideas,
    resample::bigint as draw, coalesce(knobs['factor'], knobs['capacity_share']) as factor,
    any_value(knobs['capacity_share'])                              as capacity_share,
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
group by all
