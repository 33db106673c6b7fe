-- Qwen-Bailian traces (alibaba-edu/qwen-bailian-usagetraces-anon) as canonical requests.
-- A turn names its parent by chat_id. The file has no id of the whole conversation, so the session is the root
-- for the first and second turn, and unknown for later turns.
-- Written from its README; not tested on a file of it.
-- grain: row
-- reads: source
-- units: tokens; timestamp in seconds; hashes of 16-token blocks
-- format: jsonl
-- recognised by: chat_id, parent_chat_id, timestamp, input_length, output_length, type, turn
-- may have: hash_ids, session_id
-- clock: relative, seconds from the start that the mapping names
select
    row,
    complaint,
    dice                    as request_id,
    at_start("timestamp")   as arrived_at,
    "type"                  as app,
    whole("input_length")   as input_tokens,
    whole("output_length")  as output_tokens,
    case
        when "session_id" is not null then "session_id"
        when whole("parent_chat_id") < 0 then "chat_id"
        when whole("turn") = 2 then "parent_chat_id"
    end                     as session_id,
    hashes("hash_ids")      as prefix_hashes
from source
