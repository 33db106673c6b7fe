-- How much headroom? Fewer misses of level 0 and longer waits of the lowest level than with the least headroom.
-- grain: llm, region, needs_by, load_factor, stack, levels, headroom_share
-- reads: level_isolation
-- units: *_s seconds, shares 0 to 1; made by fleetcast levels, e.g. with --headroom 0,0.1,0.2
-- top_saved_share = share of the requests of level 0 that no longer miss their target
-- bottom_cost_s = additional TTFT of the lowest level at the 99th percentile
select
    llm, region, needs_by, load_factor, stack, levels, headroom_share,
    top_missed_share,
    bottom_ttft_p99_s,
    first(top_missed_share) over more - top_missed_share                  as top_saved_share,
    bottom_ttft_p99_s - first(bottom_ttft_p99_s) over more                as bottom_cost_s
from level_isolation
where trace = $trace and day = $day::date
window more as (
    partition by llm, region, needs_by, load_factor, stack, levels
    order by headroom_share
)
order by llm, region, needs_by, load_factor, stack, levels, headroom_share
