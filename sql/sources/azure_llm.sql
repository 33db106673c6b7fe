-- Azure LLM inference traces of 2023 and 2024 (Azure/AzurePublicDataset) as canonical requests.
-- grain: row
-- reads: source
-- units: tokens; timestamps are UTC, their seventh decimal is dropped
-- format: csv
-- recognised by: TIMESTAMP, ContextTokens, GeneratedTokens
select
    row,
    complaint,
    dice                                   as request_id,
    try_cast("TIMESTAMP" as timestamptz)   as arrived_at,
    mapped('region', dice)                 as region,
    mapped('llm', dice)                    as llm,
    mapped('tier', dice)                   as tier,
    mapped('app', dice)                    as app,
    whole("ContextTokens")                 as input_tokens,
    whole("GeneratedTokens")               as output_tokens,
    null::double                           as deadline_s
from source
