-- decisions: cost and attainment of the plans of each forecast method, by capacity share; a view over trials for one release.
-- grain: trace, day, method, capacity_share
-- reads: trials
-- units: US dollars, GPU-hours, shares 0 to 1
-- trace = name of the trace <- trials.trace
-- day = UTC <- trials.day
-- method = the forecast method of the plan; truth is the real demand <- trials.variant
-- capacity_share = share of an instance's capacity within its SLO that the plan uses (models/plan/target_search.py searches it)
-- usd = cost of the day, as in scoreboard
-- boot_usd = part of usd for booting
-- gpu_hours = serving, booting and draining
-- tier = urgency class: the interactive one with the strictest targets <- trials.tier
-- attainment_share = share of its requests with TTFT within the SLO
-- missed_share = share of interactive requests that missed their SLO
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
