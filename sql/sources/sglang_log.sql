-- The request log of SGLang's server as text (sgl-project/sglang, python/sglang/srt/utils/request_logger.py, --log-requests) as requests.
-- A line "Finish: obj=..., out={...}" is a request. It arrived at request_received_ts of its meta_info if the version writes that, else at
-- the time of the line less e2e_latency. As JSON (--log-requests-format json) the log is read as any log (data/catalogue/log_columns.toml).
-- Any other line is no request. Not verified: written from SGLang's source and a line in its issue 25887, and tested with made rows.
-- grain: row
-- reads: source
-- units: tokens, seconds; the time of a line has whole seconds
-- format: text
-- recognised by: Finish: obj=
-- clock: UTC where the log has no zone: the end of a request less its latency, or the arrival in seconds since 1970
with lines as (
    select
        row,
        complaint,
        dice,
        regexp_extract(line, '(Receive|Finish): obj=(\w+)\(', ['kind', 'class']) as found,
        nullif(regexp_extract(line, '^\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)', 1), '') as written,
        if(contains(line, '''meta_info'': {'), list_last(string_split(line, '''meta_info'': {')), '') as meta
    from source
),

measured as (
    select
        *,
        regexp_extract(meta, '^''id'': ''([^'']*)''', 1) as id,
        whole(regexp_extract(meta, '''prompt_tokens'': (\d+)', 1)) as input_tokens,
        whole(regexp_extract(meta, '''completion_tokens'': (\d+)', 1)) as output_tokens,
        whole(regexp_extract(meta, '''cached_tokens'': (\d+)', 1)) as cached_tokens,
        try_cast(regexp_extract(meta, '''e2e_latency'': ([\d.e+-]+)', 1) as double) as e2e_s,
        at_epoch(regexp_extract(meta, '''request_received_ts'': ([\d.]+)', 1)) as received_at
    from lines
)

select
    row,
    case
        when complaint is not null then complaint
        when found.kind = 'Receive' then 'no request: the beginning of one, its line "Finish" counts'
        when found.kind <> 'Finish' then 'no request: a line of another kind'
        when found.class <> 'GenerateReqInput' then 'no request: it generates no text'
        when contains(meta, '''finish_reason'': {''type'': ''abort''') then 'failure: it was aborted'
    end                                                           as complaint,
    if(id = '', dice, given_id(id))                               as request_id,
    kept_id(nullif(id, ''))                                       as source_request_id,
    coalesce(received_at, instant(written) - to_microseconds(round(e2e_s * 1000000)::bigint)) as arrived_at,
    input_tokens,
    output_tokens,
    cached_tokens,
    e2e_s                                                         as source_e2e_s
from measured
