-- level_value: the fewest instances that meet every TTFT target of an endpoint, for each stack and number of levels.
-- grain: trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels
-- reads: level_trials
-- units: instances, shares 0 to 1; made by fleetcast levels
-- needs_by = how TTFT targets and levels were assigned
-- load_factor = factor on the number of requests
-- stack = the policy stack; edf uses the targets themselves, the limit of many levels
-- headroom_share = share of an instance's memory reserved for level 0; none with one level
-- instances = number of instances: the fewest that met every target; null if no trial did
-- resolution = distance to the largest number that was too few: the true value is in between
-- saved_on_one_level = saving in instances compared with the same stack and one level
-- saved_on_fewer = saving in instances compared with the next smaller number of levels
-- limit_instances = the fewest instances with edf
-- today_instances = number of instances today
-- today_met_share = share of all requests within their target on today's instances
-- today_worst_need_share = the same for the target with the worst attainment, over an idle instance
with wholes as (
    select * from level_trials where level = 'all'
),

met as (
    select
        trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels,
        min(instances) filter (where is_met)                              as instances,
        any_value(instances) filter (where is_today)                      as today_instances,
        any_value(met / requests) filter (where is_today)                 as today_met_share,
        any_value(worst_need_share) filter (where is_today)               as today_worst_need_share
    from wholes
    group by all
),

too_few as (
    select
        trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels,
        max(wholes.instances) as too_few
    from wholes
    inner join met using (trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels)
    where not wholes.is_met and wholes.instances < met.instances
    group by all
),

of_one_level as (
    select trace, day, llm, region, needs_by, load_factor, stack, instances as one_level_instances
    from met
    where levels = 1
),

of_edf as (
    select trace, day, llm, region, needs_by, load_factor, instances as limit_instances
    from met
    where stack = 'edf'
)

select
    trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels,
    instances,
    instances - coalesce(too_few, 0)                                      as resolution,
    one_level_instances - instances                                       as saved_on_one_level,
    case when levels > 1 then coalesce(lag(instances) over more, one_level_instances) - instances end
        as saved_on_fewer,
    limit_instances,
    today_instances,
    today_met_share,
    today_worst_need_share
from met
left join too_few using (trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels)
left join of_one_level using (trace, day, llm, region, needs_by, load_factor, stack)
left join of_edf using (trace, day, llm, region, needs_by, load_factor)
window more as (partition by trace, day, llm, region, needs_by, load_factor, stack, headroom_share order by levels)
