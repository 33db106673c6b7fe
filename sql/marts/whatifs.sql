-- whatifs: cost and attainment of a day under the cases of data/whatif.toml; a view over trials for one release.
-- grain: trace, day, case_name
-- reads: trials
-- units: US dollars, GPU-hours, shares 0 to 1, hours
-- trace = name of the trace <- trials.trace
-- day = UTC <- trials.day
-- case_name = its name in data/whatif.toml; with "@" and the policy where that is not corrected <- trials.variant
-- policy = which was planned and replayed <- trials.policy
-- what = what is different
-- usd = cost of the day, as in scoreboard
-- gpu_hours = serving, booting and draining
-- attainment_by_tier = of each tier, the requests that met all its targets: attainment_by_tier['niw']
-- missed_share = of interactive requests that missed their SLO
-- dearest_hour_usd = what the dearest hour of the day cost
-- short_hours = hours in which the plan could not carry all of an llm's load
-- remote_share = of the planned demand, served elsewhere beyond what epsilon allows
-- buffer_short_share = of the buffer for requests that may be held, given up
-- below_minimum_hours = hours in which an endpoint was planned fewer instances than its minimum
select
    trace, day, variant as case_name, policy, any_value(labels['what']) as what,
    max(value) filter (where metric = 'usd')                        as usd,
    max(value) filter (where metric = 'gpu_hours')                  as gpu_hours,
    map_from_entries(list({'tier': tier, 'share': value} order by tier) filter (where metric = 'attainment_share'))
        as attainment_by_tier,
    max(value) filter (where metric = 'missed_share')               as missed_share,
    max(value) filter (where metric = 'dearest_hour_usd')           as dearest_hour_usd,
    max(value) filter (where metric = 'short_hours')::bigint        as short_hours,
    max(value) filter (where metric = 'remote_share')               as remote_share,
    max(value) filter (where metric = 'buffer_short_share')         as buffer_short_share,
    max(value) filter (where metric = 'below_minimum_hours')::bigint as below_minimum_hours
from trials
where experiment = 'whatif' and llm = 'all'
group by trace, day, variant, policy
