-- unit_cost: US dollars per million tokens by policy, llm, serving region, tier and hour.
-- grain: trace, day, policy, llm, served_region, tier, hour_start
-- reads: outcomes, fleet_by_hour
-- units: US dollars, tokens
-- llm = the served network, the one that answered
-- served_region = where the instances are, not the users
-- tier = urgency class; null: cost of an hour in which no request arrived that was served here
-- hour_start = first instant of the hour of arrival, UTC
-- tokens = number of tokens: prompt and output of the requests that were served here
-- usd = cost of the instances of that llm, region and hour, by the tiers' shares of the tokens; sums to that of fleet_by_hour
-- usd_per_million_tokens = cost per million tokens; null without tokens
with served as (
    select
        trace, day, policy, served_llm as llm, served_region, tier, date_trunc('hour', arrived_at) as hour_start,
        sum(input_tokens + output_tokens)::bigint as tokens
    from outcomes
    where e2e_s is not null
    group by all
),

spent as (
    select trace, day, policy, llm, served_region, hour_start, sum(usd) as usd
    from fleet_by_hour
    semi join outcomes using (trace, day, policy)
    group by all
),

joined as (
    select
        trace, day, policy, llm, served_region, tier, hour_start,
        coalesce(tokens, 0) as tokens,
        usd * coalesce(tokens / sum(tokens) over place, 1) as usd
    from spent
    left join served using (trace, day, policy, llm, served_region, hour_start)
    window place as (partition by trace, day, policy, llm, served_region, hour_start)
)

select *, 1e6 * usd / nullif(tokens, 0) as usd_per_million_tokens
from joined
