-- pool_minutes: requests and input tokens by minute of each pool of clients, for the minutes that have some.
-- grain: pool, minute
-- reads: demand
-- units: requests; tokens; minute of the hour, UTC
with clients as (
    select
        unnest($apps::varchar[]) as app, unnest($regions::varchar[]) as region, unnest($llms::varchar[]) as llm,
        unnest($tiers::varchar[]) as tier, unnest($pools::bigint[]) as pool
)

select
    pool, day, hour(bucket_start at time zone 'UTC') as hour, minute(bucket_start) as minute,
    sum(requests)::double as requests, sum(input_tokens)::double as input_tokens
from demand
inner join clients using (app, region, llm, tier)
where trace = $trace
group by pool, day, bucket_start
order by pool, bucket_start
