-- The request log of vLLM's server (vllm-project/vllm, vllm/entrypoints/logger.py, --enable-log-requests --enable-log-outputs) as requests.
-- A line "Received request ID" becomes a request if a line "Generated response ID" follows; both list their token ids. Versions that list
-- them only at the level DEBUG need VLLM_LOGGING_LEVEL=DEBUG. With --max-log-len the lists are cut, and so are the counts: leave it out.
-- Any other line is no request. Spans of vLLM's own tracing are better: they have times and cached tokens (otel_genai).
-- grain: row
-- reads: source
-- units: tokens; a line has month, day and second, so the year is that of `start` in the mapping file
-- format: text
-- recognised by: Received request
-- clock: UTC without a year: that of the start that the mapping names
with lines as (
    select
        row,
        complaint,
        dice,
        line,
        regexp_extract(line, '(Received request|Generated response) ([^\s:]+)', ['kind', 'id']) as found,
        nullif(regexp_extract(line, '^\S+ (\d\d-\d\d \d\d:\d\d:\d\d)', 1), '') as written,
        nullif(list_last(regexp_extract_all(line, 'token_ids: \[([^\]]*)\]', 1)), '') as ids
    from source
),

counted as (
    select
        *,
        len(string_split(ids, ',')) as tokens,
        try_strptime(year(getvariable('start')) || '-' || written, '%Y-%m-%d %H:%M:%S')::timestamptz as written_at
    from lines
),

answers as (
    select found.id as id, max(tokens) as tokens, max(written_at) as written_at
    from counted
    where found.kind = 'Generated response' and not contains(line, '(streaming delta)')
    group by found.id
),

prompts as (
    select found.id as id, max(tokens) as tokens
    from counted
    where found.kind = 'Received request' or contains(line, 'details: prompt: ')
    group by found.id
)

select
    row,
    case
        when complaint is not null then complaint
        when found.kind = 'Generated response' then 'no request: the answer to an earlier line'
        when found.kind <> 'Received request' then 'no request: a line of another kind'
        when answers.id is null then 'failure: no line "Generated response" follows'
    end                                       as complaint,
    if(found.id = '', dice, given_id(found.id)) as request_id,
    kept_id(nullif(found.id, ''))             as source_request_id,
    counted.written_at                        as arrived_at,
    prompts.tokens                            as input_tokens,
    answers.tokens                            as output_tokens,
    epoch(answers.written_at) - epoch(counted.written_at) as source_e2e_s
from counted
left join answers on counted.found.id = answers.id and counted.found.kind = 'Received request'
left join prompts on counted.found.id = prompts.id
