-- arrival_windows: the gaps between arrivals in each ten minutes of a day, of clients and of pooled streams.
-- grain: trace, stream_kind, tier, region, llm, app, window_start
-- reads: arrival_windows
-- units: seconds; *_p p-values 0 to 1; *_distance 0 to 1; cv a ratio; windows with fewer than 30 gaps are omitted
-- trace = name of the trace <- requests.trace
-- day = UTC <- requests.day
-- stream_kind varchar = client (an app in a region with one llm and tier), or pooled: a stream of the mart streams
-- region varchar = where the requests come from, or all <- requests.region
-- llm varchar = the served network, or all <- requests.llm
-- tier varchar = urgency class, or all <- requests.tier
-- app varchar = the application, or all <- requests.app
-- window_start timestamptz = first instant of the window, of ten minutes <- requests.arrived_at
-- gaps bigint = number of gaps with both ends in the window
-- cv double = standard deviation over mean of the gaps: 1 for a Poisson process, more if arrivals come in clumps
-- exponential_distance double = Kolmogorov-Smirnov distance of the first 128 gaps from an exponential distribution; null: not tested
-- exponential_p double = its p-value by parametric bootstrap: small where arrivals are not a Poisson process
-- gamma_distance double = the same for a gamma distribution fitted to the gaps (closed form of Ye and Chen 2017)
-- gamma_p double = its p-value
-- weibull_distance double = the same for a Weibull distribution fitted by maximum likelihood
-- weibull_p double = its p-value
-- lognormal_distance double = the same for a lognormal distribution fitted by maximum likelihood
-- lognormal_p double = its p-value
-- hyperexponential_distance double = the same for two exponential phases of balanced means, fitted to the cv
-- hyperexponential_p double = its p-value
select
    trace, day, stream_kind, tier, region, llm, app, window_start, gaps, cv,
    exponential_distance, exponential_p, gamma_distance, gamma_p, weibull_distance, weibull_p,
    lognormal_distance, lognormal_p, hyperexponential_distance, hyperexponential_p
from arrival_windows
where trace = coalesce($trace, trace)
