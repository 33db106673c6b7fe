-- Request traces of NVIDIA Dynamo (dynamo.request.trace.v1) as canonical requests; tool events go to quarantine.
-- Written from the reference of the schema and its examples; not tested on a file of it.
-- grain: row
-- reads: source
-- units: tokens; *_ms in milliseconds; hashes are of the prompt up to and with each block of trace_block_size tokens
-- format: jsonl
-- recognised by: schema, event_type, event_time_unix_ms
-- may have: request, agent_context
-- clock: UTC, milliseconds since 1970
with checked as (
    select * replace (try_cast("request" as json) as "request", try_cast("agent_context" as json) as "agent_context")
    from source
)

select
    row,
    case
        when complaint is not null then complaint
        when "schema" is distinct from 'dynamo.request.trace.v1'
            then 'the schema is not dynamo.request.trace.v1'
        when "event_type" is distinct from 'request_end'
            then 'no request: ' || coalesce("event_type", 'no event_type')
        when whole(json_extract_string("request", '$.output_tokens')) = 0
            then 'failure: the response has 0 tokens'
    end as complaint,
    dice as request_id,
    at_epoch(
        try_cast(json_extract_string("request", '$.request_received_ms') as double) / 1000
    ) as arrived_at,
    json_extract_string("request", '$.model') as source_llm,
    whole(coalesce(
        json_extract_string("request", '$.input_tokens'),
        json_extract_string("request", '$.replay.input_length')
    )) as input_tokens,
    whole(json_extract_string("request", '$.output_tokens')) as output_tokens,
    whole(json_extract_string("request", '$.cached_tokens')) as cached_tokens,
    json_extract_string("agent_context", '$.session_id') as session_id,
    hashes(json_extract_string("request", '$.replay.input_sequence_hashes')) as prefix_hashes,
    try_cast(json_extract_string("request", '$.ttft_ms') as double) / 1000 as source_ttft_s,
    try_cast(json_extract_string("request", '$.total_time_ms') as double) / 1000 as source_e2e_s
from checked
