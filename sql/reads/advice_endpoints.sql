-- advice_endpoints: requests and input tokens of each endpoint.
-- grain: llm, region
-- reads: demand
-- units: requests; tokens
select llm, region, sum(requests)::bigint as requests, sum(input_tokens)::double as input_tokens
from demand
where trace = $trace and day between $first and $last
group by all
order by input_tokens desc
