-- whatifs: cost and attainment of a day under the cases of data/whatif.toml; a view over trials for one release.
-- grain: trace, day, case_name
-- reads: trials
-- units: US dollars, GPU-hours, shares 0 to 1, hours
-- trace = name of the trace <- trials.trace
-- day = UTC <- trials.day
-- case_name = name of the case in data/whatif.toml; with "@" and the policy if that is not corrected <- trials.variant
-- policy = the scaling policy, planned and replayed <- trials.policy
-- dearest_hour_usd = cost of the most expensive hour of the day
-- short_hours = hours in which the plan could not carry all load of an llm
-- remote_share = share of the planned demand served in more distant regions than epsilon allows
-- buffer_short_share = missing share of the buffer for requests that may be deferred
-- below_minimum_hours = hours in which an endpoint had fewer planned instances than its minimum
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
