-- Do requests arrive as a Poisson process, and which family fits best? Tiers and the largest clients, over the tested windows.
-- grain: trace, stream_kind, tier, region, llm, app
-- reads: arrival_windows
-- units: *_share of windows in which the family is not rejected at 5 %, 0 to 1; *_distance Kolmogorov-Smirnov

select
    trace, stream_kind, tier, region, llm, app,
    count(*) as windows,
    avg((exponential_p >= 0.05)::integer) as poisson_share,
    avg((gamma_p >= 0.05)::integer) as gamma_share,
    avg((weibull_p >= 0.05)::integer) as weibull_share,
    avg((lognormal_p >= 0.05)::integer) as lognormal_share,
    avg((hyperexponential_p >= 0.05)::integer) as hyperexponential_share,
    median(exponential_distance) as poisson_distance,
    median(gamma_distance) as gamma_distance,
    median(weibull_distance) as weibull_distance,
    median(lognormal_distance) as lognormal_distance,
    median(hyperexponential_distance) as hyperexponential_distance
from arrival_windows
where exponential_p is not null
group by all
order by trace, stream_kind desc, tier, region, llm, app
