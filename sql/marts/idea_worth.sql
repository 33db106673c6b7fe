-- idea_worth: saving of each idea between the simplest fleet and fleetcast, added in the planner's order and in the reverse order.
-- grain: trace, day, way, ideas_so_far
-- reads: planner_board
-- units: US dollars, shares 0 to 1
-- way = forward: in the order of models/world/planners.py; backward: in the reverse one
-- ideas_so_far = number of ideas so far; 0 is the simplest fleet
-- idea = the idea added last; null at 0
-- planner = the planner (models/world/planners.py): the one with this idea and those before
-- required_ratio = required fraction of every target, for all planners: 1, or less on a day when no planner reaches it <- planner_board.required_ratio
-- total_usd = cost, with the remaining cost of the non-interactive requests that were not served by midnight; at that attainment and the required quality <- planner_board.total_usd
-- saved_usd = cost saved by the idea, compared with the ideas before
-- saved_share = share saved: of the cost with the ideas before
-- noise_share = the resolution of the comparison <- planner_board.noise_share
with stepped as (
    select *, if(ideas = '', [], string_split(ideas, ', ')) as list from planner_board where ideas is not null
),

ways as (
    select *, 'forward' as way, list[-1] as idea
    from stepped
    where list[:1] in ([], ['hourly'])
    union all
    select *, 'backward' as way, list[1] as idea
    from stepped
    where list[-1:] in ([], ['answers'])
),

placed as (
    select trace, day, way, len(list) as ideas_so_far, idea, planner, required_ratio, total_usd, noise_share from ways
)

select
    trace, day, way, ideas_so_far, idea, planner, required_ratio, total_usd,
    lag(total_usd) over one_more - total_usd     as saved_usd,
    1 - total_usd / lag(total_usd) over one_more as saved_share,
    noise_share
from placed
window one_more as (partition by trace, day, way order by ideas_so_far)
