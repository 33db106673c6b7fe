-- Mooncake traces with sessions, as NVIDIA AIPerf and Dynamo write them (ai-dynamo/aiperf, MooncakeTrace): a later turn has a delay, no timestamp.
-- The delay counts from the end of the turn before, which the file does not have. So a turn is placed at its session's last timestamp and
-- all delays since: too early by the time that the answers before it took.
-- grain: row
-- reads: source
-- units: tokens; timestamp and delay in milliseconds
-- format: jsonl
-- recognised by: timestamp, input_length, output_length, session_id, delay
-- may have: hash_ids
-- clock: relative, milliseconds from the start that the mapping names; turns with a delay are placed without the time of the answers before
with stretches as (
    select *, count("timestamp") over (partition by "session_id" order by row) as stretch
    from source
),

placed as (
    select
        *,
        max(try_cast("timestamp" as double)) over turns
            + coalesce(sum(try_cast("delay" as double)) filter ("timestamp" is null) over turns, 0) as arrival_ms
    from stretches
    window turns as (partition by "session_id", stretch order by row)
)

select
    row,
    case
        when complaint is not null then complaint
        when "timestamp" is null and ("session_id" is null or try_cast("delay" as double) is null)
            then 'the turn has neither a timestamp nor a session with a delay'
    end                             as complaint,
    dice                            as request_id,
    at_start(arrival_ms / 1000)     as arrived_at,
    whole("input_length")           as input_tokens,
    whole("output_length")          as output_tokens,
    "session_id"                    as session_id,
    hashes("hash_ids")              as prefix_hashes
from placed
