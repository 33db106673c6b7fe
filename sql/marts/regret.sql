-- regret: what each policy spent above the least that any fleet must spend on the day's true demand, in parts that add up.
-- grain: trace, day, policy
-- reads: fleet_by_hour, all_plans, plan_bounds, left_over
-- units: *_usd US dollars, regret_share 0 upwards
-- usd = serving, booting and draining, as in scoreboard
-- fluid_usd = the least: instances divided at will, moved at once between windows and regions (models/plan/cost_bounds.py)
-- rounding_usd = instances are whole
-- minimum_usd = and of each llm at least the configured minimum
-- hour_usd = and are held for the whole hour
-- routing_usd = and each region serves most of its own, with buffer and boot times: the clairvoyant plan
-- foresight_usd = the policy's plan above the clairvoyant one: the error of its forecast, and the quantile or headroom that it holds against it; 0 where nothing is planned
-- boot_usd = booting: paid for and serving nobody
-- scaling_usd = what the policy held beyond its plan (or, unplanned, the clairvoyant one): late to give up, draining; below 0 it held less
-- backlog_usd = what the non-interactive requests that nobody had served by midnight would still cost (left_over)
-- regret_share = regret_usd in fluid_usd
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
    select trace, day, sum(fluid_usd) as fluid_usd, sum(whole_usd) as whole_usd, sum(minimum_usd) as least_usd,
        sum(hour_usd) as held_usd
    from plan_bounds
    group by trace, day
),

unserved as (
    select trace, day, policy, sum(usd) as backlog_usd
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
),

parted as (
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
)

select * from parted
