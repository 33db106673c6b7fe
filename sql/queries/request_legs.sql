-- Where did a request go, stage by stage? For requests that several instances served; without $request those with the slowest KV transfer.
-- grain: policy, request_id, leg
-- reads: legs
-- units: *_s seconds from the arrival, without network; hand_over_s is a duration
-- leg = number of the stage, from 1
-- llm = the llm that answered; role = phase of its instance: whole, prefill or decode
-- served_region = where the instance is
-- hand_over_s = time before the stage: KV transfer or a judge; null for the first stage
-- came_s = arrival in the instance's queue
-- began_s = admission to its batch
-- first_token_s = first token, if it was made there; else null
-- ended_s = end of the stage
with named as (
    select policy, request_id
    from legs
    where trace = $trace and day = $day::date and (request_id = $request or $request is null) and hand_over_s is not null
    group by policy, request_id
    qualify row_number() over (partition by policy order by max(hand_over_s) desc, request_id) <= 5
)

select distinct legs.* exclude (trace, day)
from legs
inner join named using (policy, request_id)
where trace = $trace and day = $day::date
order by policy, request_id, leg
