-- The scorecard counts every replayed request once: met, missed and pending add up to the outcomes.
-- grain: trace, day, policy
-- reads: scorecard, outcomes
-- units: requests
with scored as (
    select trace, day, policy, sum(requests) as requests, sum(met + missed + pending) as judged
    from scorecard
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day, policy
),

replayed as (
    select trace, day, policy, count(*) as outcomes
    from outcomes
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day, policy
)

select * from replayed
full join scored using (trace, day, policy)
where requests is distinct from outcomes
    or judged is distinct from outcomes
