-- prompts: the earliest requests of each llm and app for which the source has sessions or block hashes.
-- grain: request
-- reads: requests
-- units: tokens; microseconds since 1970
with known as (
    select distinct llm, app from requests
    where trace = $trace and (len(prefix_hashes) > 0 or session_id is not null)
)

select
    llm, app, region, tier, input_tokens, output_tokens, epoch_us(arrived_at) as at, session_id,
    coalesce(prefix_hashes, []) as hashes
from requests
where trace = $trace and (llm, app) in (select (llm, app) from known)
order by arrived_at, request_id
limit (select if(count(prefix_hashes) > 0, $few, $most) from requests where trace = $trace)
