-- token_pairs: input and output tokens of requests, at most $most for each client and hour, evenly spread by size.
-- grain: request
-- reads: requests
-- units: tokens; hour of the day, UTC
with numbered as (
    select
        app, region, llm, tier, day, hour(arrived_at at time zone 'UTC') as hour, input_tokens, output_tokens,
        row_number() over own as nth,
        $most / count(*) over (
            partition by app, region, llm, tier, day, hour(arrived_at at time zone 'UTC')
        ) as share
    from requests
    where trace = $trace
    window own as (
        partition by app, region, llm, tier, day, hour(arrived_at at time zone 'UTC')
        order by input_tokens, output_tokens
    )
),

turned as (select *, hash(app, region, llm, tier, day, hour) % 997 / 997 as turn from numbered)

select * exclude (nth, share, turn)
from turned
where share >= 1 or floor(nth * share + turn) > floor((nth - 1) * share + turn)
order by day, hour, input_tokens, output_tokens, app, region, llm, tier
