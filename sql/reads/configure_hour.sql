-- configure_hour: the requests of an hour, of one llm or of all, in the order of arrival.
-- grain: request
-- reads: requests
-- units: seconds since 1970, tokens
select epoch(arrived_at) as arrival_s, llm, tier, input_tokens, output_tokens, cached_tokens, prefix_hashes,
    session_id
from requests
where trace = $trace and ($llm is null or llm = $llm) and floor(epoch(arrived_at) / 3600) = $hour
order by arrived_at, request_id
