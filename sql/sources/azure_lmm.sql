-- Azure multimodal inference trace of 2025 (Azure/AzurePublicDataset) as canonical requests.
-- Written from the published schema; not tested on a file of it.
-- grain: row
-- reads: source
-- units: tokens, images
-- format: csv
-- recognised by: TIMESTAMP, NumImages, ContextTokens, GeneratedTokens
-- clock: UTC where the text has no zone
select
    row,
    case
        when complaint is not null then complaint
        when whole("NumImages") is null then 'NumImages is not a whole number'
    end                       as complaint,
    dice                      as request_id,
    instant("TIMESTAMP")      as arrived_at,
    whole("ContextTokens")    as input_tokens,
    whole("GeneratedTokens")  as output_tokens,
    whole("NumImages")        as images
from source
