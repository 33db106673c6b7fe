-- token_histogram: number of requests by number of tokens, in twenty steps per factor of ten, on one day of one trace.
-- grain: tier, llm, app, kind, tokens
-- reads: requests
-- units: tokens, the upper edge of the step
-- tier varchar = urgency class <- requests.tier
-- llm varchar = the served network, as requested <- requests.llm
-- app varchar = the application <- requests.app
-- kind varchar = what the tokens are: input, output, or total, both together
-- tokens double = number of tokens of a request: the upper edge of the step, a power of 10 ^ (1 / 20) <- requests.input_tokens, requests.output_tokens
-- requests bigint = number of requests in the step
with counted as (
    select
        tier, llm, app,
        ceil(20 * log10(input_tokens))::smallint                 as input_step,
        ceil(20 * log10(output_tokens))::smallint                as output_step,
        ceil(20 * log10(input_tokens + output_tokens))::smallint as total_step,
        count(*) as requests
    from requests
    where trace = $trace and day = $day::date
    group by all
),

steps as (
    select
        tier, llm, app,
        unnest(['input', 'output', 'total']) as kind,
        unnest([input_step, output_step, total_step]) as step,
        requests
    from counted
)

select
    tier, llm, app, kind,
    pow(10, step / 20) as tokens,
    sum(requests)::bigint as requests
from steps
group by all
order by all
