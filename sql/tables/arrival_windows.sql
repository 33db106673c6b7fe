-- arrival_windows: the gaps between arrivals in each ten minutes of a day, of clients and of pooled streams.
-- grain: trace, level, tier, region, llm, app, window_start
-- reads: arrival_windows
-- units: seconds; *_p p-values 0 to 1; windows with fewer than 30 gaps are left out
-- trace = name of the trace <- requests.trace
-- day = UTC <- requests.day
-- level = client (an app in a region with one llm and tier), or pooled: a stream of the mart streams
-- tier = urgency class, or all <- requests.tier
-- region = where the requests come from, or all <- requests.region
-- llm = the served network, or all <- requests.llm
-- app = the application, or all <- requests.app
-- window_start = first instant of the ten minutes, UTC <- requests.arrived_at
-- gaps = gaps whose both ends lie in the window
-- cv = their standard deviation in their mean: 1 for a Poisson process, more when they come in clumps
-- exponential_distance = Kolmogorov-Smirnov distance of the first 128 gaps from exponential ones; null: not tested
-- exponential_p = its p-value by parametric bootstrap: small where arrivals are no Poisson process
-- gamma_distance = the same for gamma gaps fitted to them (closed form of Ye and Chen 2017)
-- gamma_p = its p-value
-- weibull_distance = the same for Weibull gaps fitted by likelihood
-- weibull_p = its p-value
-- lognormal_distance = the same for lognormal gaps fitted by likelihood
-- lognormal_p = its p-value
-- hyperexponential_distance = the same for two exponential phases of balanced means, fitted to the cv
-- hyperexponential_p = its p-value
select
    trace, day, level, tier, region, llm, app, window_start, gaps, cv,
    exponential_distance, exponential_p, gamma_distance, gamma_p, weibull_distance, weibull_p,
    lognormal_distance, lognormal_p, hyperexponential_distance, hyperexponential_p
from arrival_windows
where trace = coalesce($trace, trace)
