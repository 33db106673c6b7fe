-- In which hours, and where, did interactive requests miss their SLO? The twenty worst of every policy and day.
-- grain: trace, day, policy, llm, region, hour_start
-- reads: scorecard
-- units: requests, missed_share 0 to 1
with missed as (
    select
        trace, day, policy, llm, region, hour_start,
        sum(requests)::bigint as requests,
        sum(missed)::bigint as missed,
        sum(missed) / sum(requests) as missed_share,
        if(count(ttft_p95_s) = count(*), max(ttft_p95_s), null) as worst_ttft_p95_s
    from scorecard
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day) and not may_wait(is_held, tier)
    group by trace, day, policy, llm, region, hour_start
)

select *
from missed
where missed > 0
qualify row_number() over (partition by trace, day, policy order by missed desc, llm, region, hour_start) <= 20
order by trace, day, policy, missed desc
