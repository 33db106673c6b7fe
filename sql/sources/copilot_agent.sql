-- The GitHub Copilot coding agent trace of 2026 (Azure/AzurePublicDataset): one session per line, one request per llm call.
-- Written from the published schema.json; not tested on a file of it.
-- grain: row, part
-- reads: source
-- units: tokens; duration_ms in milliseconds
-- format: jsonl
-- recognised by: session_id, turns
-- clock: as given, UTC where the text has no zone
with listed as (
    select
        row,
        complaint,
        dice,
        "session_id" as session_id,
        json_extract(try_cast("turns" as json), '$[*].llm_calls[*]') as calls
    from source
),

unnested as (
    select
        row,
        complaint,
        dice,
        session_id,
        generate_subscripts(if(len(calls) > 0, calls, [null::json]), 1) as part,
        unnest(if(len(calls) > 0, calls, [null::json])) as call
    from listed
)

select
    row,
    part::integer as part,
    case
        when complaint is not null then complaint
        when call is null then 'no request: the session has no llm call'
        when whole(call ->> '$.tokens.completion') = 0
            then 'failure: ' || coalesce(call ->> '$.result', 'no completion token')
    end as complaint,
    nth(dice, part) as request_id,
    instant(call ->> '$.timestamp') as arrived_at,
    call ->> '$.model' as source_llm,
    'coding-agent' as app,
    call ->> '$.initiator_type' as initiator,
    whole(call ->> '$.tokens.prompt') as input_tokens,
    whole(call ->> '$.tokens.completion') as output_tokens,
    whole(call ->> '$.tokens.cached') as cached_tokens,
    session_id,
    try_cast(call ->> '$.duration_ms' as double) / 1000 as source_e2e_s
from unnested
