-- planner_board: what a day costs under each planner where all attain the same, and quality is kept.
-- grain: trace, day, planner
-- reads: planner_trials
-- units: US dollars, GPU-hours, seconds, shares 0 to 1
-- planner = who plans (models/world/planners.py)
-- what = the planner in words
-- ideas = of the planners on the way from none of our ideas to all, those that it has; null of others
-- total_usd = usd and backlog_usd of the cheapest trial that keeps all that is asked; null where there is none, likewise all below
-- usd = cost of the day
-- backlog_usd = what the non-interactive requests that nobody had served by midnight would still cost
-- capacity_share = of what an instance sustains within its SLO, that the plan counts on there
-- required_ratio = of every target, what is asked: 1, or where nobody attains that what the least able planner does at best <- planner_trials.required_ratio
-- worst_tier = the tier that is nearest to its target
-- attained_ratio = its attainment over its target
-- quality = mean score of the answers that count; null where [quality] asks none
-- ttft_p95_s = of iw_fast, to the first token
-- tpot_p95_s = of the tiers with a target for it
-- e2e_p95_s = of iw_fast, to the last token
-- fluid_usd = the least that any fleet must spend if the llms answer that are asked
-- whole_usd = instances are whole, held for an hour, and no fewer than the minimum
-- routing_usd = each region serves most of its own, with buffer and boot times: the clairvoyant plan
-- planned_usd = the planner's plan above the clairvoyant one; below 0 where smaller llms answer
-- boot_usd = booting
-- scaling_usd = what was held beyond the plan, or beyond the clairvoyant one where nothing is planned by the hour
-- usd_error_share = how far the cost may be off for the error of the latency profiles, 90 of 100 times; null where no hours are planned
-- draws = of the day's requests, in which it attains what is asked; null where none was searched
-- low_usd = the least that it costs in them
-- high_usd = the most
-- low_over_fleetcast_share = the least that it costs above fleetcast in one draw of both
-- high_over_fleetcast_share = the most
-- noise_share = how much cheaper the nearest trial is that does not keep what is asked: the resolution of the search
-- over_fleetcast_share = total_usd above that of fleetcast
-- best_ratio = the most that attained_ratio was in any trial
-- best_quality = the most that quality was in any trial
-- failure_reason = null, or what no trial kept
with told as (
    select
        * exclude (draw, rounding_usd, minimum_usd, hour_usd, foresight_usd),
        coalesce(draw, 0)                      as draw,
        usd + backlog_usd                         as total_usd,
        rounding_usd + minimum_usd + hour_usd  as whole_usd,
        foresight_usd                          as planned_usd,
        attained_ratio >= coalesce(required_ratio, 1) as is_in_time,
        coalesce(quality >= required_quality, true) as is_good
    from planner_trials
),

kept as (
    select *
    from told
    where is_in_time and is_good
    qualify row_number() over (partition by trace, day, draw, planner order by total_usd, capacity_share) = 1
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
        count(compared.draw)          as draws,
        min(compared.total_usd)       as low_usd,
        max(compared.total_usd)       as high_usd,
        min(compared.over_fleetcast_share) as low_over_fleetcast_share,
        max(compared.over_fleetcast_share) as high_over_fleetcast_share
    from told
    left join compared using (trace, day, draw, planner, capacity_share)
    where draw > 0
    group by all
),

nearest as (
    select told.trace, told.day, told.planner, max(told.total_usd) as total_usd
    from told
    inner join found using (trace, day, draw, planner)
    where not (told.is_in_time and told.is_good) and told.total_usd < found.total_usd
    group by all
),

planners as (
    select
        trace, day, planner, any_value(what) as what, any_value(ideas) as ideas,
        any_value(required_ratio) as required_ratio,
        max(attained_ratio) as best_ratio,
        max(quality)        as best_quality,
        case
            when not bool_or(is_in_time) then 'never in time'
            when not bool_or(is_good) then 'never as good as asked'
            when not bool_or(is_in_time and is_good) then 'in time or as good as asked, never both'
        end as failure_reason
    from told
    where draw = 0
    group by trace, day, planner
)

select
    planners.trace, planners.day, planners.planner, planners.what, planners.ideas,
    found.total_usd, found.usd, found.backlog_usd, found.gpu_hours, found.capacity_share,
    planners.required_ratio, found.worst_tier, found.attained_ratio, found.quality,
    found.ttft_p95_s, found.tpot_p95_s, found.e2e_p95_s,
    found.fluid_usd, found.whole_usd, found.routing_usd, found.planned_usd, found.boot_usd, found.scaling_usd,
    found.usd_error_share,
    draws, low_usd, high_usd, low_over_fleetcast_share, high_over_fleetcast_share,
    1 - nearest.total_usd / found.total_usd as noise_share,
    found.over_fleetcast_share, best_ratio, best_quality, failure_reason
from planners
left join found using (trace, day, planner)
left join redrawn using (trace, day, planner)
left join nearest using (trace, day, planner)
