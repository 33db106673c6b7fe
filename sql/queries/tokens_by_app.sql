-- How long are the requests of each app? Median, 95th and 99th percentile of their tokens.
-- grain: trace, app, kind
-- reads: token_histogram
-- units: tokens, rounded up to a step of 10 ^ (1 / 20)
with summed as (
    select trace, app, kind, tokens, sum(requests) as requests
    from token_histogram
    group by trace, app, kind, tokens
),

shared as (
    select
        *,
        sum(requests) over (partition by trace, app, kind order by tokens)
        / sum(requests) over (partition by trace, app, kind) as share
    from summed
)

select
    trace, app, kind,
    sum(requests)::bigint as requests,
    min(tokens) filter (where share >= 0.50) as p50_tokens,
    min(tokens) filter (where share >= 0.95) as p95_tokens,
    min(tokens) filter (where share >= 0.99) as p99_tokens
from shared
group by trace, app, kind
order by trace, requests desc, app, kind
