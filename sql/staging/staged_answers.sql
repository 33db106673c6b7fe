-- The rows of a landed file as answers, each with the first rule that it breaks (null: none).
-- grain: row
-- reads: parsed, answers
-- units: tokens; part and arrived_at are those of requests
with named as (
    select
        * replace (
            trim(query_id) as query_id,
            coalesce(
                list_extract(getvariable('llms_here'), list_position(getvariable('llms_there'), llm)), llm
            ) as llm,
            nullif(trim(input_tokens), '') as input_tokens,
            nullif(trim(hardness), '') as hardness,
            map_from_entries(list_transform(
                list_filter(map_entries(judges), lambda entry: trim(entry.value) <> ''),
                lambda entry: {'key': entry.key, 'value': try_cast(entry.value as double)}
            )) as judges
        )
    from parsed
),

ruled as (
    select
        *,
        case
            when complaint is not null
                then complaint
            when coalesce(query_id, '') = ''
                then 'query_id is missing'
            when not list_contains(getvariable('llms'), coalesce(llm, ''))
                then 'unknown llm ' || coalesce(llm, '')
            when not isfinite(coalesce(score, 'nan'::double))
                then 'score is missing or not a number'
            when not (score between 0 and 1)
                then 'score lies outside 0 to 1: divide by the best possible grade'
            when output_tokens is null
                then 'output_tokens is missing or not a whole number'
            when output_tokens < 1 or output_tokens > 2147483647
                then 'output_tokens lies outside 1 to 2147483647'
            when input_tokens is not null and not coalesce(whole(input_tokens) between 1 and 2147483647, false)
                then 'input_tokens is not a whole number from 1 to 2147483647'
            when hardness is not null and not isfinite(coalesce(try_cast(hardness as double), 'nan'::double))
                then 'hardness is not a number'
            when len(list_filter(map_values(judges), lambda entry: not isfinite(coalesce(entry, 'nan'::double)))) > 0
                then 'the estimate of a judge is not a number'
        end as reason
    from named
),

-- Of the answers of an llm to a query the first one stays; the trace's other files are older than this one.
once as (
    select
        ruled.*,
        coalesce(
            ruled.reason,
            'its query_id and llm are already in the trace, from ' || before.file,
            if(
                row_number() over (partition by ruled.reason, ruled.query_id, ruled.llm order by row) > 1,
                'its query_id and llm are used by an earlier row', null
            )
        ) as refused
    from ruled
    left join answers as before
        on before.trace = getvariable('trace')
        and before.file <> getvariable('file')
        and before.query_id = ruled.query_id
        and before.llm = ruled.llm
)

select
    row,
    1 as part,
    null::timestamptz as arrived_at,
    refused as reason,
    query_id,
    llm,
    score,
    case when refused is null then output_tokens::integer end as output_tokens,
    case when refused is null then whole(input_tokens)::integer end as input_tokens,
    case when refused is null then try_cast(hardness as double) end as hardness,
    judges
from once
