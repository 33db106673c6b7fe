-- How many priority levels? The fewest instances that meet every TTFT target, by stack and number of levels.
-- grain: llm, region, needs_by, load_factor, stack, headroom_share, levels
-- reads: level_value
-- units: instances, shares 0 to 1; made by fleetcast levels
-- saved_on_fewer = saving in instances compared with the next smaller number of levels; resolution: uncertainty of the number
-- limit_instances = with edf, which uses the targets themselves
select
    llm, region, needs_by, load_factor, stack, headroom_share, levels,
    instances, resolution, saved_on_one_level, saved_on_fewer, limit_instances,
    today_instances, today_met_share, today_worst_need_share
from level_value
where trace = $trace and day = $day::date
order by llm, region, needs_by, load_factor, stack, headroom_share, levels
