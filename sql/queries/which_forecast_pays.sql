-- Which forecast pays? GPU-hours of each method's plan at equal attainment, cheapest first.
-- grain: trace, day, method
-- reads: decision_leaderboard
-- units: GPU-hours, US dollars, shares 0 to 1; made by fleetcast decide
select *
from decision_leaderboard
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
order by trace, day, gpu_hours nulls last, method
