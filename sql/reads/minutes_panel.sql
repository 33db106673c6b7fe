-- minutes_panel: requests and tokens per second by minute within the busiest hour of a trace.
-- grain: time, tier
-- reads: streams
-- units: requests per second; tokens per second
with minutes as (
    select bucket_start::timestamp as time, tier, sum(requests) / 60 as requests, sum(tokens) / 60 as tokens
    from streams
    where trace = $trace and tier <> 'all' and region = 'all' and llm = 'all' and app = 'all'
    group by all
),

busiest as (
    select date_trunc('hour', time) as hour_start
    from minutes
    group by hour_start
    order by sum(requests) desc, hour_start
    limit 1
)

select * from minutes where date_trunc('hour', time) = (select hour_start from busiest) order by all
