-- The canonical request itself, for instance from another lake.
-- grain: row
-- reads: source
-- units: tokens, seconds; a null deadline becomes the tier's
-- format: parquet
-- recognised by: request_id, arrived_at, region, llm, tier, app, input_tokens, output_tokens, deadline_s
select
    row,
    complaint,
    try_cast(request_id as ubigint)      as request_id,
    try_cast(arrived_at as timestamptz)  as arrived_at,
    region::varchar                      as region,
    llm::varchar                         as llm,
    tier::varchar                        as tier,
    app::varchar                         as app,
    whole(input_tokens)                  as input_tokens,
    whole(output_tokens)                 as output_tokens,
    try_cast(deadline_s as double)       as deadline_s
from source
