-- Traces of the Vidur simulator (microsoft/vidur) as canonical requests.
-- Written from the header of its processed traces; not tested on a file of it.
-- grain: row
-- reads: source
-- units: tokens; arrived_at in seconds
-- format: csv
-- recognised by: arrived_at, num_prefill_tokens, num_decode_tokens
-- clock: relative, seconds from the start that the mapping names
select
    row,
    complaint,
    dice                         as request_id,
    at_start("arrived_at")       as arrived_at,
    whole("num_prefill_tokens")  as input_tokens,
    whole("num_decode_tokens")   as output_tokens
from source
