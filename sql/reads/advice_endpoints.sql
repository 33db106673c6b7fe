-- advice_endpoints: requests and input tokens of each endpoint, and the dispersion of its arrivals.
-- grain: llm, region
-- reads: demand, characterisation
-- units: requests; tokens; dispersion is the variance over the mean of the minutes of an hour
with endpoints as (
    select llm, region, sum(requests)::bigint as requests, sum(input_tokens)::double as input_tokens
    from demand
    where trace = $trace and day between $first and $last
    group by all
)

select endpoints.*, characterised.dispersion
from endpoints
left join characterisation as characterised
    on characterised.trace = $trace and characterised.tier = 'all' and characterised.app = 'all'
        and characterised.llm = endpoints.llm and characterised.region = endpoints.region
order by input_tokens desc
