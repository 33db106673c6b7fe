-- Any log of requests as canonical requests: its columns are found by their names (data/catalogue/log_columns.toml) or named by the user.
-- The names there cover the logs of gateways and engines too. A request that failed, or that a gateway answered from its own cache, goes to
-- quarantine with this reason. Ids of any kind are kept in source_request_id.
-- grain: row
-- reads: source
-- units: tokens; times and durations in the units that were found
-- format: log
-- recognised by: arrived_at, input_tokens, output_tokens
-- may have: total_tokens, ended_at, first_token_at, request_id, source_llm, region, tier, app, deadline_s, session_id, query_id, cached_tokens, prefix_hashes, images, source_ttft_s, source_e2e_s, status, kind, from_cache, requests, tier_source, tier_confidence
-- clock: found in the file
-- ids: as given where the log has them; the mapping's shares use a hash of them
with timed as (
    select
        *,
        duration(source_e2e_s, 'source_e2e_s') as e2e_s,
        coalesce(whole(input_tokens), whole(total_tokens) - whole(output_tokens)) as tokens_in,
        coalesce(whole(output_tokens), whole(total_tokens) - whole(input_tokens)) as tokens_out,
        moment(ended_at, 'ended_at') as finished_at,
        coalesce(
            moment(arrived_at, 'arrived_at'),
            case when abs(e2e_s) < 3.2e9 then finished_at - to_microseconds(round(1e6 * e2e_s)::bigint) end
        ) as began_at
    from source
)

select
    row,
    case
        when complaint is not null then complaint
        when not list_contains(coalesce(getvariable('kinds'), [kind]), kind)
            then 'no request: ' || coalesce(nullif(kind, ''), 'no ' || getvariable('kind_column'))
        when whole(requests) > 1 then 'the row is a sum of several requests'
        when lower(from_cache) in ('true', '1', 'hit') then 'no request: the gateway answered it from its cache'
        when regexp_matches(lower(status), '^([45]\d\d$|0$|fail|err|timeout|cancel|abort|\w*exception)')
            then 'failure: ' || getvariable('status_column') || ' ' || status
        when tokens_out = 0 and getvariable('output_tokens') is null
            then 'failure: the response has 0 tokens'
    end                                                       as complaint,
    coalesce(given_id(nullif(request_id, '')), dice)          as request_id,
    kept_id(nullif(request_id, ''))                           as source_request_id,
    began_at                                                  as arrived_at,
    nullif(source_llm, '')                                    as source_llm,
    nullif(region, '')                                        as region,
    nullif(tier, '')                                          as tier,
    nullif(app, '')                                           as app,
    tokens_in                                                 as input_tokens,
    tokens_out                                                as output_tokens,
    try_cast(deadline_s as double)                            as deadline_s,
    nullif(session_id, '')                                    as session_id,
    nullif(query_id, '')                                      as query_id,
    whole(cached_tokens)                                      as cached_tokens,
    hashes(prefix_hashes)                                     as prefix_hashes,
    whole(images)                                             as images,
    coalesce(
        duration(source_ttft_s, 'source_ttft_s'),
        (epoch_us(moment(first_token_at, 'first_token_at')) - epoch_us(began_at)) / 1e6
    )                                                         as source_ttft_s,
    coalesce(e2e_s, (epoch_us(finished_at) - epoch_us(began_at)) / 1e6) as source_e2e_s,
    nullif(tier_source, '')                                   as tier_source,
    try_cast(tier_confidence as double)                       as tier_confidence
from timed
