-- Demand has exactly the requests and tokens that arrived, per trace, day, region, llm, tier and app.
-- grain: trace, day, region, llm, tier, app
-- reads: requests, demand
-- units: tokens
with arrived as (
    select
        trace, day, region, llm, tier, app,
        count(*) as requests,
        sum(input_tokens) as input_tokens,
        sum(output_tokens) as output_tokens
    from requests
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day, region, llm, tier, app
),

demanded as (
    select
        trace, day, region, llm, tier, app,
        sum(requests) as requests,
        sum(input_tokens) as input_tokens,
        sum(output_tokens) as output_tokens
    from demand
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day, region, llm, tier, app
),

-- Only days with demand are compared: a day whose demand was never built breaks nothing.
compared as (
    select
        trace, day, region, llm, tier, app,
        arrived.requests as requests_arrived,
        demanded.requests as requests_in_demand,
        arrived.input_tokens as input_tokens_arrived,
        demanded.input_tokens as input_tokens_in_demand,
        arrived.output_tokens as output_tokens_arrived,
        demanded.output_tokens as output_tokens_in_demand
    from arrived
    full join demanded using (trace, day, region, llm, tier, app)
    where (trace, day) in (select (trace, day) from demanded)
)

select * from compared
where
    requests_arrived is distinct from requests_in_demand
    or input_tokens_arrived is distinct from input_tokens_in_demand
    or output_tokens_arrived is distinct from output_tokens_in_demand
