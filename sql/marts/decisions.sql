-- decisions: cost and attainment of the plans of each forecast method, by capacity share; a view over trials for one release.
-- grain: trace, day, method, capacity_share
-- reads: trials
-- units: US dollars, GPU-hours, shares 0 to 1
-- trace = name of the trace <- trials.trace
-- day = UTC <- trials.day
-- method = the forecast method of the plan; truth is the real demand <- trials.variant
-- tier = urgency class: the interactive one with the strictest targets <- trials.tier
-- attainment_share = share of requests that met all their targets (sql/macros/slo.sql); of that tier
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
