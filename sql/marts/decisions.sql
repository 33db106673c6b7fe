-- decisions: cost and attainment of the plan that each forecast method makes, by how much of an instance it counts on; a view over trials for one release.
-- grain: trace, day, method, capacity_share
-- reads: trials
-- units: US dollars, GPU-hours, shares 0 to 1
-- trace = name of the trace <- trials.trace
-- day = UTC <- trials.day
-- method = how the plan's demand was forecast; truth is what came <- trials.variant
-- capacity_share = of what an instance sustains within its SLO, that the plan counts on (models/plan/target_search.py searches it)
-- usd = cost of the day, as in scoreboard
-- boot_usd = of it, booting
-- gpu_hours = serving, booting and draining
-- tier = the interactive one with the strictest targets that the trace has <- trials.tier
-- attainment_share = of its requests whose TTFT is within the SLO
-- missed_share = of interactive requests that missed their SLO
-- matched_share = attainment at which methods are compared: the tier's target
select
    trace, day, variant as method, knobs['capacity_share'] as capacity_share,
    max(value) filter (where metric = 'usd')                        as usd,
    max(value) filter (where metric = 'boot_usd')                   as boot_usd,
    max(value) filter (where metric = 'gpu_hours')                  as gpu_hours,
    any_value(labels['tier'])                                       as tier,
    max(value) filter (where metric = 'attainment_share' and tier = labels['tier']) as attainment_share,
    max(value) filter (where metric = 'missed_share')               as missed_share,
    max(value) filter (where metric = 'matched_share')              as matched_share
from trials
where experiment = 'decide' and llm = 'all'
group by trace, day, variant, knobs['capacity_share']
