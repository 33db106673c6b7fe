-- Every policy has every hour of the fleet, and no endpoint has negative instance-seconds.
-- grain: trace, day, policy
-- reads: fleet_hours
-- units: instance-seconds
with counted as (
    select
        trace, day, policy,
        count(distinct hour_start) as hours,
        min(least(serving_s, booting_s, draining_s, donated_s)) as least_s,
        max(kv_utilisation_share) as most_kv_share
    from fleet_hours
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day, policy
)

select * from counted
where hours <> 24 or least_s < 0 or most_kv_share > 1.0 + 1e-9
