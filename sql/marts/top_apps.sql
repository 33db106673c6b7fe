-- top_apps: the applications of a trace ordered by requests, over all tiers and within each (SageServe figure 6a).
-- grain: trace, tier, app
-- reads: demand
-- units: requests, tokens; *_share 0 to 1
-- trace = name of the trace <- demand.trace
-- tier = urgency class, or all <- demand.tier
-- app = the application <- demand.app
-- place = rank, from 1: the app with the most requests
-- requests = number of requests of the whole trace <- demand.requests
-- request_share = share of the tier's requests
-- cumulated_share = share of the requests of this row and those before it: of the tier's, by this app and larger ones
-- token_share = share of the tier's input and output tokens <- demand.input_tokens, demand.output_tokens
with summed as (
    select
        trace,
        if(grouping(tier) = 1, 'all', tier) as tier,
        app,
        sum(requests)::bigint as requests,
        sum(input_tokens + output_tokens) as tokens
    from demand
    group by grouping sets ((trace, app), (trace, tier, app))
),

shared as (
    select
        trace, tier, app,
        row_number() over (partition by trace, tier order by requests desc, app) as place,
        requests,
        requests / sum(requests) over (partition by trace, tier) as request_share,
        tokens / sum(tokens) over (partition by trace, tier) as token_share
    from summed
)

select
    trace, tier, app, place, requests, request_share,
    sum(request_share) over (partition by trace, tier order by place) as cumulated_share,
    token_share
from shared
