-- How much do latencies vary within the busiest hour of a day? By minute of arrival (SageServe figure 6d).
-- grain: trace, day, policy, tier, minute
-- reads: outcomes
-- units: *_s seconds from arrival to the last token, finished requests; deviation_s standard deviation, null for one request
with finished_requests as (
    select *
    from outcomes
    where
        day = coalesce($day::date, day) and trace = coalesce($trace, trace)
        and policy = coalesce($policy, policy) and status = 'finished'
),

busiest as (
    select trace, day, policy, time_bucket(interval 1 hour, arrived_at) as hour_start
    from finished_requests
    group by trace, day, policy, hour_start
    qualify row_number() over (partition by trace, day, policy order by count(*) desc, hour_start) = 1
)

select
    trace, day, policy, tier,
    time_bucket(interval 1 minute, arrived_at) as minute,
    count(*) as requests,
    avg(e2e_s) as mean_s,
    stddev_samp(e2e_s) as deviation_s
from finished_requests
inner join busiest using (trace, day, policy)
where time_bucket(interval 1 hour, arrived_at) = hour_start
group by trace, day, policy, tier, minute
order by trace, day, policy, tier, minute
