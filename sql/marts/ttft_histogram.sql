-- ttft_histogram: number of requests by time to first token, in fifty steps per factor of ten.
-- grain: trace, day, policy, tier, ttft_s
-- reads: outcomes
-- units: ttft_s seconds from arrival to the first token, the upper edge of its bin
-- requests = number of requests in this bin
-- cumulated_share = share of the requests of this row and those before it: of the tier's, in this bin and the faster ones; the rest up to 1 was never served
with binned as (
    select
        trace, day, policy, tier,
        if(ttft_s is null, null, pow(10, ceil(log10(greatest(ttft_s, 0.001)) * 50) / 50)) as ttft_s
    from outcomes
),

counted as (
    select trace, day, policy, tier, ttft_s, count(*) as requests
    from binned
    group by trace, day, policy, tier, ttft_s
),

summed as (
    select
        *,
        sum(requests) over (partition by trace, day, policy, tier order by ttft_s nulls last)
        / sum(requests) over (partition by trace, day, policy, tier) as cumulated_share
    from counted
)

select * from summed where ttft_s is not null
