-- BurstGPT traces (HPMLL/BurstGPT, v1.1 to v2.0) as canonical requests; a response of 0 tokens is a failure.
-- Written from its README and header line; not tested on a file of it.
-- grain: row
-- reads: source
-- units: tokens; Timestamp and Elapsed time in seconds, which v1.1 has without Session ID and Elapsed time
-- format: csv
-- recognised by: Timestamp, Model, Request tokens, Response tokens, Log Type
-- may have: Session ID, Elapsed time
-- clock: relative, seconds from the start that the mapping names
select
    row,
    case
        when complaint is not null then complaint
        when whole("Response tokens") = 0 then 'failure: the response has 0 tokens'
    end                                  as complaint,
    dice                                 as request_id,
    at_start("Timestamp")                as arrived_at,
    "Model"                              as source_llm,
    "Log Type"                           as app,
    whole("Request tokens")              as input_tokens,
    whole("Response tokens")             as output_tokens,
    nullif("Session ID", '')             as session_id,
    try_cast("Elapsed time" as double)   as source_e2e_s
from source
