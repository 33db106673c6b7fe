-- regret: cost of each policy above the lower bound of any fleet for the day's true demand, in parts that add up.
-- grain: trace, day, policy
-- reads: fleet_by_hour, all_plans, plan_bounds, left_over
-- units: *_usd US dollars, regret_share 0 upwards
-- regret_share = regret_usd over fluid_usd
-- regret_usd = cost above the best in hindsight: usd and backlog_usd above fluid_usd
with spent as (
    select
        trace, day, policy,
        sum(usd) as usd,
        sum(boot_usd) as boot_usd
    from fleet_by_hour
    group by trace, day, policy
),

planned as (
    select trace, day, policy, sum(usd) as plan_usd
    from all_plans
    group by trace, day, policy
),

least as (
    select trace, day, sum(fluid_usd) as fluid_usd, sum(whole_usd) as whole_usd, sum(with_minimum_usd) as least_usd,
        sum(whole_hours_usd) as held_usd
    from plan_bounds
    group by trace, day
),

unserved as (
    select trace, day, policy, sum(backlog_usd) as backlog_usd
    from left_over
    group by trace, day, policy
),

joined as (
    select
        trace, day, spent.policy, usd, fluid_usd, whole_usd, least_usd, held_usd,
        boot_usd,
        clairvoyant.plan_usd as clairvoyant_usd,
        coalesce(own.plan_usd, clairvoyant.plan_usd) as plan_usd,
        coalesce(backlog_usd, 0) as backlog_usd
    from spent
    inner join least using (trace, day)
    inner join (select * from planned where policy = 'clairvoyant') as clairvoyant using (trace, day)
    left join unserved on unserved.trace = spent.trace and unserved.day = spent.day and unserved.policy = spent.policy
    left join planned as own on own.trace = spent.trace and own.day = spent.day and own.policy = spent.policy
)

select
    trace, day, policy, usd, fluid_usd,
    usd + backlog_usd - fluid_usd as regret_usd,
    whole_usd - fluid_usd as rounding_usd,
    least_usd - whole_usd as minimum_usd,
    held_usd - least_usd as hour_usd,
    clairvoyant_usd - held_usd as routing_usd,
    plan_usd - clairvoyant_usd as foresight_usd,
    boot_usd,
    usd - plan_usd - boot_usd as scaling_usd,
    backlog_usd,
    (usd + backlog_usd - fluid_usd) / nullif(fluid_usd, 0) as regret_share
from joined
