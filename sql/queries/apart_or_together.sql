-- Should prefill and decode be disaggregated? The largest possible saving by phase prices, and the saving of the best fleets.
-- grain: trace, day, llm
-- reads: phase_prices, gpu_fleets
-- units: US dollars per hour, shares 0 to 1; made by fleetcast gpus
-- prefill_gpu, decode_gpu = the cheapest GPU type of each phase; if both are the same, the instance sizes may differ
-- together_usd = the cheapest fleet without disaggregation; null if it was not searched
-- saved_share = saving of the best disaggregated fleet
with prices as (
    select
        trace, day, llm,
        min(gpu) filter (where is_cheapest_prefill) as prefill_gpu,
        min(gpu) filter (where is_cheapest_decode) as decode_gpu,
        any_value(disaggregation_saving_bound_share) as disaggregation_saving_bound_share
    from phase_prices
    group by trace, day, llm
),

fleets as (
    select
        trace, day, llm,
        min(fleet_usd_per_hour) filter (where fleet <> 'combos') as together_usd,
        min(fleet_usd_per_hour) filter (where fleet = 'combos') as combos_usd
    from gpu_fleets
    group by trace, day, llm
)

select *, 1 - combos_usd / together_usd as saved_share
from prices
left join fleets using (trace, day, llm)
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
order by trace, day, llm
