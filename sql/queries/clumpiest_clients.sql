-- Which clients send in clumps? The clients whose gaps vary most, with their share of the trace.
-- grain: trace, app, region, llm, tier
-- reads: arrival_windows
-- units: *_cv coefficients of variation, 1 for a Poisson process; gap_share 0 to 1
-- gap_cv = over all windows of ten minutes, mean weighted by gaps
-- largest_cv = of the ten minutes with the largest value
with clients as (
    select
        trace, app, region, llm, tier,
        sum((cv * gaps)::decimal(28, 9)) / sum(gaps) as gap_cv,
        max(cv) as largest_cv,
        count(*) as windows,
        sum(gaps) as gaps
    from arrival_windows
    where stream_kind = 'client'
    group by trace, app, region, llm, tier
),

shared as (
    select
        trace, app, region, llm, tier, gap_cv, largest_cv, windows,
        gaps / sum(gaps) over (partition by trace) as gap_share
    from clients
)

select * from shared
qualify row_number() over (partition by trace order by gap_cv desc, app, region, llm, tier) <= 20
order by trace, gap_cv desc
