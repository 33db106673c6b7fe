-- Mooncake traces (kvcache-ai/Mooncake) as canonical requests; the blocks of shared prefixes are not kept.
-- grain: row
-- reads: source
-- units: tokens; timestamp is in ms from the start that the mapping names
-- format: jsonl
-- recognised by: timestamp, input_length, output_length
select
    row,
    complaint,
    dice                                                                 as request_id,
    getvariable('start') + to_microseconds((1000 * try_cast("timestamp" as double))::bigint) as arrived_at,
    mapped('region', dice)                                               as region,
    mapped('llm', dice)                                                  as llm,
    mapped('tier', dice)                                                 as tier,
    mapped('app', dice)                                                  as app,
    whole("input_length")                                                as input_tokens,
    whole("output_length")                                               as output_tokens,
    null::double                                                         as deadline_s
from source
