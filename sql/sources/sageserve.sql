-- Traces of the SageServe simulator (shashwatj07/SageServe, generate_random_trace.py) as canonical requests.
-- No such trace is public; written from the simulator's generator. sla is a deadline in seconds, -1 for none;
-- regions lists the regions by preference as digits, which number the catalogue's regions. batch_size is
-- repeated on each of a batch's rows, so a row is one request.
-- grain: row
-- reads: source
-- units: tokens; arrival_timestamp and sla in seconds
-- format: csv
-- recognised by: request_id, client_tenant, sla, regions, model_type, workload_type, application_id, arrival_timestamp, prompt_size, token_size
-- may have: scenario, batch_id
-- clock: relative, seconds from the start that the mapping names
select
    row,
    complaint,
    dice                                                      as request_id,
    at_start("arrival_timestamp")                             as arrived_at,
    getvariable('regions')[1 + whole(left("regions", 1))]     as region,
    "model_type"                                              as source_llm,
    case when whole("sla") < 0 then 'niw' end                 as tier,
    "workload_type" || '-' || "application_id"                as app,
    whole("prompt_size")                                      as input_tokens,
    whole("token_size")                                       as output_tokens,
    case when whole("sla") > 0 then whole("sla")::double end  as deadline_s,
    nullif("batch_id", '-1')                                  as session_id
from source
