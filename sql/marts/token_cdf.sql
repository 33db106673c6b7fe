-- token_cdf: cumulative distribution of the tokens of an llm's requests (SageServe figure 10).
-- grain: trace, llm, kind, tokens
-- reads: token_histogram
-- units: tokens; cumulated_share 0 to 1
-- trace = name of the trace <- token_histogram.trace
-- llm = the served network <- token_histogram.llm
-- kind = what the tokens are: input, output, or total, both together <- token_histogram.kind
-- tokens = number of tokens of a request: the upper edge of the step, a power of 10 ^ (1 / 20) <- token_histogram.tokens
-- requests = number of requests in the step <- token_histogram.requests
-- cumulated_share = share of the requests of this row and those before it: of the llm's, in this step and below
with summed as (
    select trace, llm, kind, tokens, sum(requests)::bigint as requests
    from token_histogram
    group by trace, llm, kind, tokens
)

select
    *,
    sum(requests) over (partition by trace, llm, kind order by tokens)
    / sum(requests) over (partition by trace, llm, kind) as cumulated_share
from summed
