-- Where did a request go, leg by leg? Of requests that several instances had; without $request those handed over slowest.
-- grain: policy, request_id, leg
-- reads: legs
-- units: *_s seconds from the arrival, without network; hand_over_s lasted so long
-- leg = 1 is the first
-- llm = that answered; role = what its instance does of a request: whole, prefill or decode
-- hand_over_s = what lay before the leg: a cache on its way, or a judge; null before the first
-- came_s = when it was in the instance's queue
-- began_s = when it was in its batch
-- first_token_s = when its first token was made there; null where it was not
-- ended_s = when the instance was done with it
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
