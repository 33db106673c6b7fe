-- Mooncake traces (kvcache-ai/Mooncake) as canonical requests, with the hashes of their 512-token blocks.
-- grain: row
-- reads: source
-- units: tokens; timestamp in milliseconds
-- format: jsonl
-- recognised by: timestamp, input_length, output_length
-- may have: hash_ids, session_id
-- clock: relative, milliseconds from the start that the mapping names
select
    row,
    complaint,
    dice                                             as request_id,
    at_start(try_cast("timestamp" as double) / 1000) as arrived_at,
    whole("input_length")                            as input_tokens,
    whole("output_length")                           as output_tokens,
    "session_id"                                     as session_id,
    hashes("hash_ids")                               as prefix_hashes
from source
