-- Every request of the day ends exactly once under every policy: finished, refused, or reported as still queued.
-- grain: trace, day, policy
-- reads: requests, outcomes
-- units: requests; unsound requests contradict their own status
-- ids = sum of the hashes of the ids: with equal counts it differs if one is lost and another one is there twice
with arrived as (
    select trace, day, count(*) as requests, sum(hash(request_id)) as ids
    from requests
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day
),

checked as (
    select
        trace, day, policy, request_id,
        case status
            when 'finished' then ttft_s >= 0 and e2e_s >= ttft_s and served_region is not null and queued_s is null
            when 'queued' then e2e_s is null and queued_s >= 0
            when 'refused' then ttft_s is null and e2e_s is null and queued_s is null
        end as is_sound
    from outcomes
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
),

ended as (
    select
        trace, day, policy,
        count(*) as ends,
        sum(hash(request_id)) as ids,
        count(*) - count_if(is_sound) as unsound
    from checked
    group by trace, day, policy
)

select trace, day, policy, requests, ends, arrived.ids = ended.ids as are_the_same, unsound
from ended
left join arrived using (trace, day)
where requests is distinct from ends
    or arrived.ids is distinct from ended.ids
    or unsound > 0
