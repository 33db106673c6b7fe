-- Should prefill and decode stand apart? What it saves at most, by prices of phases, and what the best fleets saved.
-- grain: trace, day, llm
-- reads: phase_prices, gpu_fleets
-- units: US dollars of an hour, shares 0 to 1; made by fleetcast gpus
-- prefill_gpu, decode_gpu = the cheapest type of each phase; where they are alike, sizes of instances may differ
-- together_usd = the cheapest fleet whose instances do whole requests; null where none was asked for
-- saved_share = what the best fleet of combos costs less
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
