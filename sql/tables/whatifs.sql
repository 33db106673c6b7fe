-- whatifs: cost and attainment of a day under the cases of data/whatif.toml.
-- grain: trace, day, case_name
-- reads: whatifs
-- units: US dollars, GPU-hours, shares 0 to 1, hours
-- trace = name of the trace <- forecasts.trace
-- day = UTC <- forecasts.day
-- case_name = its name in data/whatif.toml
-- usd = cost of the day, as in scoreboard
-- gpu_hours = serving, booting and draining
-- iw_fast_attainment_share = of iw_fast requests whose TTFT is within the SLO
-- iw_normal_attainment_share = likewise
-- niw_attainment_share = of niw requests that ended before their deadline
-- missed_share = of interactive requests that missed their SLO
-- short_hours = hours in which the plan could not carry all of an llm's demand
-- what = what is different
select * from whatifs
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
