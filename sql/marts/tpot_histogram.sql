-- tpot_histogram: number of requests by time per output token, in fifty steps per factor of ten, for tiers with a TPOT target.
-- grain: trace, day, policy, tier, tpot_s
-- reads: outcomes
-- units: tpot_s seconds per output token after the first, the upper edge of its bin
-- requests = number of requests in this bin; the first bin includes requests with a single token, which meet any target
-- cumulated_share = share of the requests of this row and those before it: of the tier's, in this bin and the faster ones; the rest up to 1 was never served
with binned as (
    select
        trace, day, policy, tier,
        if(e2e_s is null, null, pow(10, ceil(log10(greatest(coalesce(tpot_s, 0), 0.001)) * 50) / 50)) as tpot_s
    from outcomes
    where tpot_slo_s is not null
),

counted as (
    select trace, day, policy, tier, tpot_s, count(*) as requests
    from binned
    group by trace, day, policy, tier, tpot_s
),

summed as (
    select
        *,
        sum(requests) over (partition by trace, day, policy, tier order by tpot_s nulls last)
        / sum(requests) over (partition by trace, day, policy, tier) as cumulated_share
    from counted
)

select * from summed where tpot_s is not null
