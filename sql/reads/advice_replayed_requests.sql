-- advice_replayed_requests: the requests of one day, or without a day of the whole trace, in order of arrival.
-- grain: request
-- reads: requests
-- units: seconds since 1970; tokens
select epoch(arrived_at) as arrival_s, llm, tier, input_tokens, output_tokens, cached_tokens, prefix_hashes
from requests
where trace = $trace and ($day is null or day = $day::date)
order by arrived_at, request_id
