-- decision_leaderboard: cost of each forecast method at equal attainment, with the same planner and replay.
-- grain: trace, day, method
-- reads: decisions, plan_bounds
-- units: GPU-hours, US dollars, shares 0 to 1
-- method = the forecast method of the plan; truth is the real demand
-- tier = urgency class: the one whose attainment is compared, with the strictest SLO
-- gpu_hours = GPU-hours of serving, booting and draining; at that attainment, by linear interpolation between the two nearest replays; null where there are none
-- noise_share = the resolution of the comparison: difference of the GPU-hours of these two replays
-- usd = cost of the instances; at that attainment
-- fluid_usd, constraint_usd, routing_usd, forecast_usd, boot_usd = the parts of usd, as in regret
-- routing_usd = additional cost of serving most of the load in its region, of buffer and boot times: the clairvoyant plan above that, without boots
-- forecast_usd = cost of the method above the clairvoyant forecast, without boots
-- over_truth_share = GPU-hours above those of the clairvoyant forecast
-- saved_on_last_value_share = GPU-hours below those of the last value
-- saved_on_seasonal_naive_share = GPU-hours below those of the seasonal naive forecast
-- as_planned_attainment_share = attainment of the tier if the plan uses the whole capacity
-- as_planned_gpu_hours = GPU-hours of that plan
with neighbours as (
    select
        *,
        lead(attainment_share) over cheaper_first as next_share,
        lead(gpu_hours) over cheaper_first          as next_gpu_hours,
        lead(usd) over cheaper_first                as next_usd,
        lead(boot_usd) over cheaper_first           as next_boot_usd
    from decisions
    window cheaper_first as (partition by trace, day, method order by capacity_share desc)
),

crossings as (
    select
        trace,
        day,
        method,
        gpu_hours + weight * (next_gpu_hours - gpu_hours) as gpu_hours,
        usd + weight * (next_usd - usd)                   as usd,
        boot_usd + weight * (next_boot_usd - boot_usd)    as boot_usd,
        next_gpu_hours / gpu_hours - 1                    as noise_share
    from (
        select
            *,
            (matched_share - attainment_share)
            / (next_share - attainment_share) as weight
        from neighbours
        where attainment_share < matched_share and next_share >= matched_share
    )
    qualify row_number() over (partition by trace, day, method order by capacity_share) = 1
),

reached as (
    select
        trace,
        day,
        method,
        case
            when min(attainment_share) >= any_value(matched_share)
                then format('still attains {:.1f} % at {:.1f} times the capacity',
                    100 * min(attainment_share), max(capacity_share))
            when max(attainment_share) < any_value(matched_share)
                then format('attains only {:.1f} % at {:.1f} of the capacity',
                    100 * max(attainment_share), min(capacity_share))
        end as failure_reason
    from decisions
    group by trace, day, method
),

as_planned as (
    select
        trace,
        day,
        method,
        tier,
        matched_share,
        attainment_share         as as_planned_attainment_share,
        gpu_hours                as as_planned_gpu_hours
    from decisions
    where capacity_share = 1
),

least as (
    select
        trace,
        day,
        sum(fluid_usd)       as fluid_usd,
        sum(whole_hours_usd) as held_usd
    from plan_bounds
    group by trace, day
),

matched as (
    select
        as_planned.*,
        crossings.gpu_hours,
        crossings.usd,
        crossings.boot_usd,
        crossings.noise_share,
        reached.failure_reason,
        least.fluid_usd,
        least.held_usd - least.fluid_usd as constraint_usd,
        max(crossings.usd - crossings.boot_usd) filter (where method = 'truth') over of_day as truth_usd
    from as_planned
    left join crossings using (trace, day, method)
    left join reached using (trace, day, method)
    left join least using (trace, day)
    window of_day as (partition by trace, day)
)

select
    trace,
    day,
    method,
    tier,
    matched_share,
    gpu_hours,
    noise_share,
    failure_reason,
    usd,
    fluid_usd,
    constraint_usd,
    truth_usd - constraint_usd - fluid_usd as routing_usd,
    usd - boot_usd - truth_usd as forecast_usd,
    boot_usd,
    gpu_hours / max(gpu_hours) filter (where method = 'truth') over of_day - 1 as over_truth_share,
    1 - gpu_hours / max(gpu_hours) filter (where method = 'last_value') over of_day
        as saved_on_last_value_share,
    1 - gpu_hours / max(gpu_hours) filter (where method = 'seasonal_naive') over of_day
        as saved_on_seasonal_naive_share,
    as_planned_attainment_share,
    as_planned_gpu_hours
from matched
window of_day as (partition by trace, day)
