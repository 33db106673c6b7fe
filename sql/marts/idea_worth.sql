-- idea_worth: what each idea on the way from the plainest fleet to fleetcast saves, added in the order of the planner and in the reverse one.
-- grain: trace, day, way, place
-- reads: planner_board
-- units: US dollars, shares 0 to 1
-- way = forward: in the order of models/world/planners.py; backward: in the reverse one
-- place = 0 the plainest fleet, then one idea more each time
-- idea = that is added there; null at 0
-- planner = that has it, and those before it
-- required_ratio = of every target, what is asked <- planner_board.required_ratio
-- total_usd = where that is attained and quality is kept <- planner_board.total_usd
-- saved_usd = by the idea, on the place before it
-- saved_share = of what the place before it costs
-- noise_share = the resolution of the search <- planner_board.noise_share
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
    select trace, day, way, len(list) as place, idea, planner, required_ratio, total_usd, noise_share from ways
)

select
    trace, day, way, place, idea, planner, required_ratio, total_usd,
    lag(total_usd) over one_more - total_usd     as saved_usd,
    1 - total_usd / lag(total_usd) over one_more as saved_share,
    noise_share
from placed
window one_more as (partition by trace, day, way order by place)
