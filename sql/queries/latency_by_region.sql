-- How long do requests take, by tier and serving region? Seconds to the last token (SageServe figure 6c).
-- grain: trace, day, policy, tier, served_region
-- reads: outcomes
-- units: *_s seconds from arrival to the last token; finished requests
with counted as (
    select
        trace, day, policy, tier, served_region,
        count(*) as requests,
        avg(e2e_s) as mean_s,
        quantile_cont(e2e_s, [0.05, 0.25, 0.50, 0.75, 0.95]) as e2e  -- one aggregate: each keeps all values
    from outcomes
    where
        day = coalesce($day::date, day) and trace = coalesce($trace, trace)
        and policy = coalesce($policy, policy) and status = 'finished'
    group by trace, day, policy, tier, served_region
)

select
    * exclude (e2e),
    e2e[1] as p5_s, e2e[2] as p25_s, e2e[3] as p50_s, e2e[4] as p75_s, e2e[5] as p95_s
from counted
order by trace, day, policy, tier, served_region
