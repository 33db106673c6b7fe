-- token_moments: means and mean squares of the logarithms of each client's tokens, independent of the order of rows.
-- grain: app, region, llm, tier
-- reads: requests
-- units: logarithms of 1 + tokens
select
    app, region, llm, tier, count(*)::double as n,
    avg(ln(1 + input_tokens)::decimal(28, 9))::double as input_mean,
    avg((ln(1 + input_tokens) ^ 2)::decimal(28, 9))::double as input_square,
    avg(ln(1 + output_tokens)::decimal(28, 9))::double as output_mean,
    avg((ln(1 + output_tokens) ^ 2)::decimal(28, 9))::double as output_square
from requests
where trace = $trace
group by all
