-- advice_trace: summary of an imported trace by its requests.
-- grain: one row
-- reads: requests
-- units: requests; UTC instants; tokens; cached_share of the input tokens, null where a day has no record of hits
select
    count(*)::bigint as requests, min(arrived_at) as first_at, max(arrived_at) as last_at,
    sum(input_tokens)::double as input_tokens, sum(output_tokens)::double as output_tokens,
    count(distinct app)::bigint as apps, any_value(app) as app,
    list(distinct region order by region) as regions, list(distinct tier order by tier) as tiers,
    count_if(tier_source = 'dealt')::bigint as tiers_from_shares,
    case when count(distinct day) = count(distinct day) filter (cached_tokens is not null)
        then sum(cached_tokens) / greatest(sum(input_tokens), 1) end::double as cached_share,
    count(prefix_hashes) > 0 as has_prompt_hashes
from requests
where trace = $trace
