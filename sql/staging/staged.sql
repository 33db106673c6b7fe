-- The rows of a landed file as canonical requests, each with the first rule that it breaks (null: none).
-- grain: row
-- reads: parsed
-- units: tokens, seconds
with filled as (
    select
        * replace (
            coalesce(app, 'unknown') as app,
            coalesce(
                deadline_s, getvariable('deadlines_s')[list_position(getvariable('tiers'), tier)]
            ) as deadline_s
        )
    from parsed
),

judged as (
    select
        *,
        case
            when complaint is not null
                then complaint
            when request_id is null
                then 'request_id is missing or not a whole number from 0'
            when arrived_at is null
                then 'the timestamp is missing or unreadable'
            when arrived_at < '2000-01-01'::timestamptz or arrived_at >= '2100-01-01'::timestamptz
                then 'the timestamp lies outside the years 2000 to 2099'
            when region is null or not list_contains(getvariable('regions'), region)
                then 'unknown region ' || coalesce(region, '(none)')
            when llm is null or not list_contains(getvariable('llms'), llm)
                then 'unknown llm ' || coalesce(llm, '(none)')
            when tier is null or not list_contains(getvariable('tiers'), tier)
                then 'unknown tier ' || coalesce(tier, '(none)')
            when input_tokens is null
                then 'input_tokens is missing or not a whole number'
            when input_tokens < 1 or input_tokens > 2147483647
                then 'input_tokens lies outside 1 to 2147483647'
            when output_tokens is null
                then 'output_tokens is missing or not a whole number'
            when output_tokens < 1 or output_tokens > 2147483647
                then 'output_tokens lies outside 1 to 2147483647'
            when not (deadline_s > 0 and deadline_s < 'infinity'::double)
                then 'deadline_s is not above 0'
        end as reason
    from filled
),

dated as (
    select
        row,
        reason,
        request_id,
        arrived_at,
        arrived_at::date as day,
        region,
        llm,
        tier,
        app,
        case when reason is null then input_tokens::integer end as input_tokens,
        case when reason is null then output_tokens::integer end as output_tokens,
        deadline_s
    from judged
)

select * from dated
