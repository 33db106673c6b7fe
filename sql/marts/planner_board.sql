-- planner_board: cost of a day under each planner at equal attainment and quality.
-- grain: trace, day, planner
-- reads: planner_trials
-- units: US dollars, GPU-hours, seconds, shares 0 to 1
-- ideas = the ideas of the planner, for the planners between none of fleetcast's ideas and all; null for other planners
-- total_usd = cost, with the remaining cost of the non-interactive requests that were not served by midnight; of the cheapest trial that meets all requirements; null where there is none, like all columns below
-- required_ratio = required fraction of every target, for all planners: 1, or less on a day when no planner reaches it <- planner_trials.required_ratio
-- quality = mean score of the final answers; null without a [quality] requirement
-- ttft_p95_s = time to first token, 95th percentile; of the strictest tier
-- tpot_p95_s = time per output token after the first, 95th percentile; of the tiers with a TPOT target, null where no tier has one
-- e2e_p95_s = time to the last token, 95th percentile; of the strictest tier
-- fluid_usd = lower bound on the cost of any fleet: fractional instances that move at once (models/plan/cost_bounds.py); if the requested llms answer
-- planned_usd = the planner's plan above the clairvoyant plan; below 0 where smaller llms answer
-- usd_error_share = error of the cost from errors of the latency profiles, in 90 of 100 cases, by what each llm cost
-- kept_draws = number of resamples of the day's requests in which it meets the requirements; null without resamples
-- low_usd = lower end of the cost: the lowest over the resamples
-- high_usd = upper end of the cost: the highest over the resamples
-- low_over_fleetcast_share = lowest cost above fleetcast, with both on the same resample
-- high_over_fleetcast_share = highest cost above fleetcast
-- noise_share = the resolution of the comparison: how much cheaper the nearest trial is that misses a requirement
-- over_fleetcast_share = total_usd above that of fleetcast
-- best_ratio = largest attained_ratio of all trials
-- best_quality = highest quality of all trials
with scored as (
    select
        * exclude (draw, rounding_usd, minimum_usd, hour_usd, foresight_usd),
        coalesce(draw, 0)                      as draw,
        usd + backlog_usd                         as total_usd,
        rounding_usd + minimum_usd + hour_usd  as constraint_usd,
        foresight_usd                          as planned_usd,
        attained_ratio >= coalesce(required_ratio, 1) as is_in_time,
        coalesce(quality >= required_quality, true) as is_good
    from planner_trials
),

kept as (
    select *
    from scored
    where is_in_time and is_good
    qualify row_number() over (partition by trace, day, draw, planner order by total_usd, factor) = 1
),

compared as (
    select
        *,
        total_usd / max(total_usd) filter (where planner = 'fleetcast') over (partition by trace, day, draw) - 1
            as over_fleetcast_share
    from kept
),

found as (
    select * from compared where draw = 0
),

redrawn as (
    select
        trace, day, planner,
        count(compared.draw)          as kept_draws,
        min(compared.total_usd)       as low_usd,
        max(compared.total_usd)       as high_usd,
        min(compared.over_fleetcast_share) as low_over_fleetcast_share,
        max(compared.over_fleetcast_share) as high_over_fleetcast_share
    from scored
    left join compared using (trace, day, draw, planner, factor)
    where draw > 0
    group by all
),

nearest as (
    select scored.trace, scored.day, scored.planner, max(scored.total_usd) as total_usd
    from scored
    inner join found using (trace, day, draw, planner)
    where not (scored.is_in_time and scored.is_good) and scored.total_usd < found.total_usd
    group by all
),

planners as (
    select
        trace, day, planner, any_value(what) as what, any_value(ideas) as ideas,
        any_value(required_ratio) as required_ratio,
        max(attained_ratio) as best_ratio,
        max(quality)        as best_quality,
        case
            when not bool_or(is_in_time) then 'no trial meets the SLO targets'
            when not bool_or(is_good) then 'no trial meets the quality'
            when not bool_or(is_in_time and is_good) then 'no trial meets the SLO targets and the quality together'
        end as failure_reason
    from scored
    where draw = 0
    group by trace, day, planner
)

select
    planners.trace, planners.day, planners.planner, planners.what, planners.ideas,
    found.total_usd, found.usd, found.backlog_usd, found.gpu_hours, found.factor, found.capacity_share,
    planners.required_ratio, found.worst_tier, found.attained_ratio, found.quality,
    found.ttft_p95_s, found.tpot_p95_s, found.e2e_p95_s,
    found.fluid_usd, found.constraint_usd, found.routing_usd, found.planned_usd, found.boot_usd, found.scaling_usd,
    found.usd_error_share,
    kept_draws, low_usd, high_usd, low_over_fleetcast_share, high_over_fleetcast_share,
    1 - nearest.total_usd / found.total_usd as noise_share,
    found.over_fleetcast_share, best_ratio, best_quality, failure_reason
from planners
left join found using (trace, day, planner)
left join redrawn using (trace, day, planner)
left join nearest using (trace, day, planner)
