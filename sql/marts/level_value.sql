-- level_value: the fewest instances that meet every need of an endpoint, for each stack and number of levels.
-- grain: trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels
-- reads: level_trials
-- units: instances, shares 0 to 1; made by fleetcast levels
-- needs_by = how needs and levels were dealt
-- load_factor = requests for each one of the day
-- stack = how requests came to instances; edf looks at needs themselves: what many levels come near to
-- headroom_share = of an instance's memory, for level 0; no headroom with one level
-- levels = how many there were
-- instances = the fewest that met every need; null where none of those tried did
-- resolution = above the most that were found too few: the answer lies between
-- saved_on_one_level = instances fewer than the same stack with one level
-- saved_on_fewer = instances fewer than the next smaller number of levels that was tried
-- limit_instances = the fewest of edf
-- today_instances = that serve today
-- today_met_share = of all requests, those that got what they needed on today's instances
-- today_worst_need_share = the same of the need that came off worst, over an idle instance
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
