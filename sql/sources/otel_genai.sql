-- OpenTelemetry spans of the GenAI conventions, exported as OTLP JSON lines, as canonical requests.
-- A span with gen_ai.usage tokens is a request; any other goes to quarantine. Names before 1.27 of the conventions
-- (prompt_tokens, completion_tokens) are read too. The app is the service.name of the resource.
-- Written from the conventions; not tested on a file of it. Some servers have
-- gen_ai.latency.time_to_first_token.
-- grain: row, part
-- reads: source
-- units: tokens; start and end in nanoseconds since 1970, kept to the microsecond; time to first token in s
-- format: jsonl
-- recognised by: resourceSpans
-- clock: UTC, nanoseconds since 1970
with listed as (
    select
        row,
        complaint,
        dice,
        flatten(list_transform(
            json_extract(try_cast("resourceSpans" as json), '$[*]'),
            lambda resource: list_transform(
                json_extract(resource, '$.scopeSpans[*].spans[*]'),
                lambda span: {
                    'service': otel_value(json_extract(resource, '$.resource.attributes[*]'), 'service.name'),
                    'span': span
                }
            )
        )) as spans
    from source
),

unnested as (
    select
        row,
        complaint,
        dice,
        generate_subscripts(if(len(spans) > 0, spans, [null]), 1)::integer as part,
        unnest(if(len(spans) > 0, spans, [null])) as one
    from listed
),

read as (
    select
        *,
        one.service as app,
        json_extract(one.span, '$.attributes[*]') as span_attributes,
        whole(coalesce(
            otel_value(span_attributes, 'gen_ai.usage.input_tokens'), otel_value(span_attributes, 'gen_ai.usage.prompt_tokens')
        )) as input_tokens,
        whole(coalesce(
            otel_value(span_attributes, 'gen_ai.usage.output_tokens'), otel_value(span_attributes, 'gen_ai.usage.completion_tokens')
        )) as output_tokens,
        try_cast(one.span ->> '$.startTimeUnixNano' as ubigint) as start_ns,
        try_cast(one.span ->> '$.endTimeUnixNano' as ubigint) as end_ns
    from unnested
)

select
    row,
    part,
    case
        when complaint is not null then complaint
        when one is null then 'no request: the line has no span'
        when otel_value(span_attributes, 'error.type') is not null and coalesce(output_tokens, 0) = 0
            then 'failure: ' || otel_value(span_attributes, 'error.type')
        when input_tokens is null and output_tokens is null
            then 'no request: the span has no gen_ai.usage tokens'
    end as complaint,
    nth(dice, part) as request_id,
    at_epoch(start_ns / 1e9) as arrived_at,
    coalesce(
        otel_value(span_attributes, 'gen_ai.response.model'), otel_value(span_attributes, 'gen_ai.request.model')
    ) as source_llm,
    app,
    input_tokens,
    output_tokens,
    whole(otel_value(span_attributes, 'gen_ai.usage.cache_read.input_tokens')) as cached_tokens,
    otel_value(span_attributes, 'gen_ai.conversation.id') as session_id,
    try_cast(coalesce(
        otel_value(span_attributes, 'gen_ai.response.time_to_first_chunk'),
        otel_value(span_attributes, 'gen_ai.latency.time_to_first_token')
    ) as double) as source_ttft_s,
    case when end_ns >= start_ns then (end_ns - start_ns) / 1e9 end as source_e2e_s
from read
