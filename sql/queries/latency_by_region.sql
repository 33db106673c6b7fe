-- How long do requests take, by tier and serving region? Seconds to the last token (SageServe figure 6c).
-- grain: trace, day, policy, tier, served_region
-- reads: outcomes
-- units: *_s seconds from arrival to the last token; finished requests
select
    trace, day, policy, tier,
    served_region,
    count(*) as requests,
    avg(e2e_s) as mean_s,
    quantile_cont(e2e_s, 0.05) as p5_s,
    quantile_cont(e2e_s, 0.25) as p25_s,
    quantile_cont(e2e_s, 0.50) as p50_s,
    quantile_cont(e2e_s, 0.75) as p75_s,
    quantile_cont(e2e_s, 0.95) as p95_s
from outcomes
where
    day = coalesce($day::date, day) and trace = coalesce($trace, trace)
    and policy = coalesce($policy, policy) and status = 'finished'
group by trace, day, policy, tier, served_region
order by trace, day, policy, tier, served_region
