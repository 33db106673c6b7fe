-- The SwissAI serving trace (eth-easl/swissai-serving-trace, OpenTela) as canonical requests.
-- If the source counted no tokens it has -1: such a row goes to quarantine with that reason.
-- Written from its published list of fields; not tested on a file of it. Only some of its files have
-- bucket_ids.
-- grain: row
-- reads: source
-- units: tokens; hashes are ids of 16-token buckets, in the bucket files only
-- format: jsonl
-- recognised by: status, created_at, finished_at, model, reported_token_input, reported_token_output
-- may have: bucket_ids
-- clock: UTC where the text has no zone
select
    row,
    case
        when complaint is not null then complaint
        when "status" = 'ERROR' then 'failure: status ERROR'
        when whole("reported_token_input") < 0 or whole("reported_token_output") < 0
            then 'the source did not count its tokens'
        when whole("reported_token_output") = 0 then 'failure: the response has 0 tokens'
    end                             as complaint,
    dice                            as request_id,
    instant("created_at")           as arrived_at,
    "model"                         as source_llm,
    whole("reported_token_input")   as input_tokens,
    whole("reported_token_output")  as output_tokens,
    hashes("bucket_ids")            as prefix_hashes,
    (epoch_us(instant("finished_at")) - epoch_us(instant("created_at"))) / 1e6 as source_e2e_s
from source
