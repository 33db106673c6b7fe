-- growth: load of a mean day of one trace over that of another trace (SageServe section 3: about 5 in seven months).
-- grain: trace, before, tier
-- reads: demand, tiers
-- units: ratios; days are recorded days
-- trace = name of the trace: the later one, or any other <- demand.trace
-- before = the trace that it is compared with <- demand.trace
-- tier = urgency class, interactive: the sum of all tiers that are not deferred, or all <- demand.tier
-- requests_ratio = requests per day over those of `before` <- demand.requests
-- tokens_ratio = the same for input and output tokens <- demand.input_tokens, demand.output_tokens
with summed as (
    select
        trace, tier,
        sum(requests) as requests,
        sum(input_tokens + output_tokens) as tokens
    from demand
    group by trace, tier
),

days as (
    select trace, count(distinct day) as days
    from demand
    group by trace
),

tiered as (
    select
        trace,
        unnest(list_distinct([tier, if(may_wait(is_held, tier), tier, 'interactive'), 'all'])) as tier,
        requests,
        tokens
    from summed
    left join tiers using (trace, tier)
),

by_trace as (
    select
        trace, tier,
        sum(requests) / any_value(days) as requests,
        sum(tokens) / any_value(days) as tokens
    from tiered
    inner join days using (trace)
    group by trace, tier
)

select
    later.trace,
    earlier.trace as before,
    tier,
    later.requests / earlier.requests as requests_ratio,
    later.tokens / earlier.tokens as tokens_ratio
from by_trace as later
inner join by_trace as earlier using (tier)
where later.trace <> earlier.trace
