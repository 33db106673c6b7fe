-- Traces of the Splitwise simulator (Mutinifni/splitwise-sim, generate_trace.py) as canonical requests.
-- Written from the generating script; not tested on a file of it.
-- grain: row
-- reads: source
-- units: tokens; arrival_timestamp in seconds; a batch of several requests is refused, none is known to exist
-- format: csv
-- recognised by: request_id, request_type, application_id, arrival_timestamp, batch_size, prompt_size, token_size
-- clock: relative, seconds from the start that the mapping names
select
    row,
    case
        when complaint is not null then complaint
        when whole("batch_size") <> 1 then 'batch_size is not 1'
    end                            as complaint,
    dice                           as request_id,
    at_start("arrival_timestamp")  as arrived_at,
    'app-' || "application_id"     as app,
    whole("prompt_size")           as input_tokens,
    whole("token_size")            as output_tokens
from source
