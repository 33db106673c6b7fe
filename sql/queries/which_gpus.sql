-- Which GPUs to rent? The best fleet of each kind for each llm, cheapest first.
-- grain: trace, day, llm, fleet
-- reads: gpu_fleets
-- units: US dollars, GPUs, shares 0 to 1; made by fleetcast gpus
select
    trace, day, llm, fleet,
    string_agg(options || ' x (' || option || ')', ' + ' order by option) as rented,
    sum(gpus)::bigint as gpus,
    any_value(fleet_usd_per_hour) as usd_per_hour,
    any_value(tokens_per_usd) as tokens_per_usd,
    any_value(attainment_share) as attainment_share,
    bool_or(is_best) as is_best
from gpu_fleets
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
group by trace, day, llm, fleet
order by trace, day, llm, usd_per_hour, fleet
