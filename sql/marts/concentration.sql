-- concentration: how unevenly the requests of a trace are distributed over its apps and clients.
-- grain: trace, of_what
-- reads: demand
-- units: *_share 0 to 1
-- trace = name of the trace <- demand.trace
-- of_what = app, or client: an app in one region with one llm and tier <- demand.app
-- members = number of apps or clients with a request
-- top_share = share of all requests from the largest one <- demand.requests
-- top_tenth_share = share of all requests from the largest tenth of them (at least one) <- demand.requests
-- effective_members = 1 / sum of squared shares (inverse Herfindahl index): the number of equal members with the same concentration
-- gini = Gini coefficient of their requests: 0 if all are equal, towards 1 if one has all
with members as (
    select trace, 'app' as of_what, app as member, sum(requests) as requests
    from demand
    group by trace, app
    union all
    select
        trace, 'client' as of_what, concat_ws('|', app, region, llm, tier) as member, sum(requests) as requests
    from demand
    group by trace, app, region, llm, tier
),

ranked as (
    select
        *,
        row_number() over (partition by trace, of_what order by requests desc, member) as place,
        count(*) over (partition by trace, of_what) as members,
        requests / sum(requests) over (partition by trace, of_what) as share
    from members
)

select
    trace, of_what,
    any_value(members) as members,
    max(share) as top_share,
    sum(share) filter (where place <= greatest(members // 10, 1)) as top_tenth_share,
    1 / sum(share * share) as effective_members,
    sum(share * (members + 1 - 2 * place)) / any_value(members) as gini
from ranked
group by trace, of_what
