-- decisions: cost and attainment of the plan that each forecast method makes, by how much of an instance it counts on.
-- grain: trace, day, method, capacity_share
-- reads: decisions
-- units: US dollars, GPU-hours, shares 0 to 1
-- trace = name of the trace <- forecasts.trace
-- day = UTC <- forecasts.day
-- method = how the plan's demand was forecast; truth is what came <- forecasts.method
-- capacity_share = of what an instance sustains within its SLO, that the plan counts on (models/plan/crossing.py searches it)
-- usd = cost of the day, as in scoreboard
-- boot_usd = of it, booting
-- gpu_hours = serving, booting and draining
-- tier = the interactive one with the strictest targets that the trace has
-- attainment_share = of its requests whose TTFT is within the SLO
-- missed_share = of interactive requests that missed their SLO
-- matched_share = attainment at which methods are compared: the tier's target
select * from decisions
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
