-- tokens_per_usd: served tokens per US dollar by policy, with the attainment: Cauchy's metric.
-- grain: trace, day, policy
-- reads: outcomes, scoreboard
-- units: tokens, US dollars, shares 0 to 1
-- served_tokens = input and output tokens of the finished requests
-- tokens_per_usd = tokens of the served requests per US dollar
-- attainment_share = share of requests that met all their targets (sql/macros/slo.sql); of the strictest tier. At different attainment tokens_per_usd means little
-- attainment_share, missed_share = see scoreboard: at different attainment the metric means little
with served as (
    select trace, day, policy, sum(input_tokens + output_tokens)::double as served_tokens
    from outcomes
    where status = 'finished'
    group by trace, day, policy
)

select
    trace, day, policy,
    served_tokens,
    usd,
    served_tokens / usd as tokens_per_usd,
    attainment_share,
    missed_share
from served
inner join scoreboard using (trace, day, policy)
