-- gap_variation: burstiness of the arrivals of a trace and its parts, pooled and by client.
-- Pooled arrivals hide the burstiness of single clients: compare gap_cv with client_gap_cv (ServeGen section 3).
-- grain: trace, tier, region, llm, app
-- reads: arrival_windows
-- units: coefficients of variation (1 for a Poisson process); *_share 0 to 1, of the tested windows
-- trace = name of the trace <- arrival_windows.trace
-- tier = urgency class, or all <- arrival_windows.tier
-- region = where the requests come from, or all <- arrival_windows.region
-- llm = the served network, or all <- arrival_windows.llm
-- app = the application, or all <- arrival_windows.app
-- gap_cv = coefficient of variation of the gaps between arrivals in windows of ten minutes, mean weighted by gaps <- arrival_windows.cv
-- client_gap_cv = gap_cv within each client (app in a region with one llm and tier) <- arrival_windows.cv
-- poisson_share = share of tested windows in which Poisson arrivals are not rejected at 5 % <- arrival_windows.exponential_p
-- gamma_share = the same for gamma gaps <- arrival_windows.gamma_p
-- weibull_share = the same for Weibull gaps <- arrival_windows.weibull_p
-- lognormal_share = the same for lognormal gaps <- arrival_windows.lognormal_p
-- hyperexponential_share = the same for hyperexponential gaps with two phases <- arrival_windows.hyperexponential_p
with client as (
    select
        trace,
        if(grouping(tier) = 1, 'all', tier) as tier,
        if(grouping(region) = 1, 'all', region) as region,
        if(grouping(llm) = 1, 'all', llm) as llm,
        if(grouping(app) = 1, 'all', app) as app,
        sum((cv * gaps)::decimal(28, 9)) / sum(gaps) as client_gap_cv
    from arrival_windows
    where stream_kind = 'client'
    group by grouping sets (
        (trace), (trace, tier), (trace, region), (trace, llm), (trace, app), (trace, tier, region)
    )
),

pooled as (
    select
        trace, tier, region, llm, app,
        sum((cv * gaps)::decimal(28, 9)) / sum(gaps) as gap_cv,
        avg((exponential_p >= 0.05)::integer) as poisson_share,
        avg((gamma_p >= 0.05)::integer) as gamma_share,
        avg((weibull_p >= 0.05)::integer) as weibull_share,
        avg((lognormal_p >= 0.05)::integer) as lognormal_share,
        avg((hyperexponential_p >= 0.05)::integer) as hyperexponential_share
    from arrival_windows
    where stream_kind = 'pooled'
    group by trace, tier, region, llm, app
)

select
    trace, tier, region, llm, app,
    gap_cv, client_gap_cv, poisson_share, gamma_share, weibull_share, lognormal_share, hyperexponential_share
from pooled
left join client using (trace, tier, region, llm, app)
