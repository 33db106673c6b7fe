-- The rows of a landed file as canonical requests, each with the first rule that it breaks (null: none).
-- grain: row, part
-- reads: parsed
-- units: tokens, seconds; part counts the requests of a row with several
with every_column as (
    select
        null::bigint as row,
        null::integer as part,
        null::varchar as complaint,
        null::ubigint as request_id,
        null::timestamptz as arrived_at,
        null::varchar as region,
        null::varchar as llm,
        null::varchar as tier,
        null::varchar as app,
        null::bigint as input_tokens,
        null::bigint as output_tokens,
        null::double as deadline_s,
        null::varchar as session_id,
        null::varchar as query_id,
        null::bigint as cached_tokens,
        null::ubigint[] as prefix_hashes,
        null::bigint as images,
        null::varchar as source_llm,
        null::double as source_ttft_s,
        null::double as source_e2e_s,
        null::varchar as tier_source,
        null::double as tier_confidence,
        null::varchar as source_request_id,
        null::varchar as initiator
    where false
),

completed as (
    select * from every_column
    union all by name
    select * from parsed
),

filled as (
    select
        * replace (
            coalesce(part, 1) as part,
            coalesce(named(region), mapped('region', coalesce(md5_number_lower(session_id), fair(request_id)))) as region,
            coalesce(llm, called(source_llm, coalesce(md5_number_lower(session_id), fair(request_id)))) as llm,
            named(tier) as tier,
            coalesce(nullif(app, ''), mapped('app', fair(request_id)), 'unknown') as app,
            coalesce(nullif(output_tokens, 0), getvariable('output_tokens'), output_tokens) as output_tokens
        )
    from completed
),

ruled as (
    select
        *,
        case
            when tier is null and not getvariable('is_tier_mapped')
                then tier_by_rule(app, initiator, deadline_s, source_ttft_s)
        end as judgement
    from filled
),

-- A second step, because DuckDB would work out the rule once for the condition and once for its result.
allowed as (
    select *, list_contains(getvariable('tiers'), judgement['tier']) as is_allowed
    from ruled
),

tiered as (
    select
        * replace (
            coalesce(
                tier, case when is_allowed then judgement['tier'] end, mapped('tier', fair(request_id))
            ) as tier,
            case
                when tier is not null then coalesce(tier_source, 'given')
                when getvariable('is_tier_mapped') then 'mapping'
                when is_allowed then judgement['rule']
                else 'dealt'
            end as tier_source,
            case
                when tier is not null then coalesce(tier_confidence, 1)
                when getvariable('is_tier_mapped') then 1
                when is_allowed then judgement['confidence']
                else 0
            end as tier_confidence
        )
    from allowed
),

due as (
    select
        * replace (
            coalesce(
                deadline_s, getvariable('deadlines_s')[list_position(getvariable('tiers'), tier)]
            ) as deadline_s
        )
    from tiered
),

judged as (
    select
        *,
        case
            when complaint is not null
                then complaint
            when request_id is null
                then 'request_id is missing'
            when arrived_at is null
                then 'the timestamp is missing or unreadable'
            when arrived_at < '2020-01-01'::timestamptz or arrived_at >= '2100-01-01'::timestamptz
                then 'the timestamp lies outside the years 2020 to 2099'
            when not list_contains(getvariable('regions'), region)
                then 'unknown region ' || region
            when not list_contains(getvariable('llms'), llm)
                then 'unknown llm ' || llm
            when not list_contains(getvariable('tiers'), tier)
                then 'unknown tier ' || tier
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
    from due
)

select
    row,
    part,
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
    deadline_s,
    session_id,
    query_id,
    case when cached_tokens between 0 and input_tokens then cached_tokens::integer end as cached_tokens,
    prefix_hashes,
    case when images between 0 and 2147483647 then images::integer end as images,
    source_llm,
    case when source_ttft_s >= 0 then source_ttft_s end as source_ttft_s,
    case when source_e2e_s >= 0 then source_e2e_s end as source_e2e_s,
    tier_source,
    tier_confidence,
    source_request_id
from judged
