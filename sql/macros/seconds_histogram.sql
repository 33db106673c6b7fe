-- seconds_histogram: number of requests by their seconds, in fifty steps per factor of ten, of those that are counted.
-- grain: trace, day, policy, tier, edge_s
-- reads: outcomes
-- units: edge_s seconds, the upper edge of a bin; requests whose seconds are null were never served
create or replace macro seconds_histogram(seconds, is_counted) as table
    with
    counted as (
        select
            trace, day, policy, tier,
            if(seconds is null, null, pow(10, ceil(log10(greatest(seconds, 0.001)) * 50) / 50)) as edge_s,
            count(*) as requests
        from outcomes
        where is_counted
        group by trace, day, policy, tier, edge_s
    ),

    summed as (
        select
            *,
            sum(requests) over (partition by trace, day, policy, tier order by edge_s nulls last)
            / sum(requests) over (partition by trace, day, policy, tier) as cumulated_share
        from counted
    )

    select * from summed where edge_s is not null;
