-- questions: a sample of a tier's requests for one of these llms, of all days or of past ones.
-- grain: request
-- reads: requests
-- units: tokens
select llm, app, input_tokens, output_tokens, query_id
from requests
where
    trace = $trace and tier = $tier and list_contains($llms::varchar[], llm)
    and ($past is null or list_contains($past::date[], day))
order by md5_number_lower(request_id::varchar), request_id
limit $size
