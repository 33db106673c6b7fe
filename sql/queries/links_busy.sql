-- How busy are the links that transfer KV caches from prefill to decode? By hour, for links with a transfer.
-- grain: policy, hour_start, served_region, llm, role, gpu
-- reads: legs, requests
-- no rows: No KV cache was transferred between instances.
-- units: *_share 0 to 1, *_s seconds; hour_start is the hour in which the caches arrived, UTC
-- role, gpu = the instances at one end: prefill sends, decode receives
-- links = instances that sent or received a cache; caches = number of caches
-- busy_share = mean share of the hour in which their links transferred caches; busiest_share = that of the busiest link
-- hand_over_p50_s, hand_over_p95_s = from the end of the prompt's prefill until the cache had arrived
with received as (
    select
        policy, request_id, leg, served_region, llm, role, gpu, instance, link_s, hand_over_s,
        time_bucket(interval 1 hour, arrived_at + to_microseconds((1e6 * came_s)::bigint)) as hour_start
    from legs
    inner join (select request_id, arrived_at from requests where trace = $trace and day = $day::date) as arrivals
        using (request_id)
    where trace = $trace and day = $day::date and link_s is not null
),

ends as (
    select * exclude (request_id, leg) from received
    union all by name
    select
        legs.policy, legs.served_region, legs.llm, legs.role, legs.gpu, legs.instance,
        received.link_s, received.hand_over_s, received.hour_start
    from received
    inner join legs on legs.policy = received.policy and legs.request_id = received.request_id
        and legs.leg = received.leg - 1
    where legs.trace = $trace and legs.day = $day::date
),

by_link as (
    select
        policy, hour_start, served_region, llm, role, gpu, instance,
        count(*)           as caches,
        sum(link_s) / 3600 as busy_share,
        list(hand_over_s)  as hand_overs_s
    from ends
    group by policy, hour_start, served_region, llm, role, gpu, instance
),

by_hour as (
    select
        policy, hour_start, served_region, llm, role, gpu,
        count(*)                       as links,
        sum(caches)::bigint            as caches,
        avg(busy_share)                as busy_share,
        max(busy_share)                as busiest_share,
        flatten(list(hand_overs_s))    as hand_overs_s
    from by_link
    group by policy, hour_start, served_region, llm, role, gpu
)

select
    * exclude (hand_overs_s),
    list_aggregate(hand_overs_s, 'quantile_disc', 0.5)  as hand_over_p50_s,
    list_aggregate(hand_overs_s, 'quantile_disc', 0.95) as hand_over_p95_s
from by_hour
order by policy, hour_start, served_region, llm, role, gpu
