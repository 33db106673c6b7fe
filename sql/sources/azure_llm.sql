-- Azure LLM inference traces of 2023 and 2024 (Azure/AzurePublicDataset) as canonical requests.
-- grain: row
-- reads: source
-- units: tokens; the seventh decimal of a timestamp is dropped
-- format: csv
-- recognised by: TIMESTAMP, ContextTokens, GeneratedTokens
-- clock: UTC where the text has no zone (2023), as given where it has one (2024)
select
    row,
    complaint,
    dice                      as request_id,
    instant("TIMESTAMP")      as arrived_at,
    whole("ContextTokens")    as input_tokens,
    whole("GeneratedTokens")  as output_tokens
from source
