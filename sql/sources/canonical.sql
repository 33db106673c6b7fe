-- The canonical request, for example from another lake, or from a trace without a format here.
-- Values that are null or missing come from the mapping, the rules and the tier.
-- grain: row
-- reads: source
-- units: tokens, seconds
-- format: parquet
-- recognised by: request_id, arrived_at, input_tokens, output_tokens
-- may have: region, llm, tier, app, deadline_s, session_id, query_id, cached_tokens, prefix_hashes, images, source_llm, source_ttft_s, source_e2e_s, tier_source, tier_confidence
-- clock: as given, UTC where the column has no zone
-- ids: of any kind; what is not a whole number from 0 is hashed, with the original in source_request_id; the mapping's shares use a hash
select
    row,
    complaint,
    given_id(request_id)                  as request_id,
    kept_id(request_id)                   as source_request_id,
    instant(arrived_at)                   as arrived_at,
    region::varchar                       as region,
    llm::varchar                          as llm,
    tier::varchar                         as tier,
    app::varchar                          as app,
    whole(input_tokens)                   as input_tokens,
    whole(output_tokens)                  as output_tokens,
    try_cast(deadline_s as double)        as deadline_s,
    session_id::varchar                   as session_id,
    query_id::varchar                     as query_id,
    whole(cached_tokens)                  as cached_tokens,
    try_cast(prefix_hashes as ubigint[])  as prefix_hashes,
    whole(images)                         as images,
    source_llm::varchar                   as source_llm,
    try_cast(source_ttft_s as double)     as source_ttft_s,
    try_cast(source_e2e_s as double)      as source_e2e_s,
    tier_source::varchar                  as tier_source,
    try_cast(tier_confidence as double)   as tier_confidence
from source
