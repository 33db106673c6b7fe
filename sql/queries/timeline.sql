-- When was each request of one endpoint transferred, queued, prefilled, decoded? One hour of one policy, for a timeline.
-- grain: policy, request_id, leg
-- reads: outcomes, legs
-- units: *_s seconds of the day, *_tokens tokens; $policy, $llm, $region (that served it) and $hour select the requests
-- handed_from_s = start of the KV transfer to this instance
-- queued_from_s = arrival in its instance's queue
with day_of as (
    select *, epoch(arrived_at) - epoch($day::timestamp) as arrival_s
    from outcomes
    where trace = $trace and day = $day::date and policy = $policy and status = 'finished'
        and hour(arrived_at) = $hour
),

visits as (
    select
        request_id, 1 as leg, 'whole' as role, instance, null::double as hand_over_s,
        held_s as came_s, held_s + waited_s as began_s, held_s + waited_s + prefill_s as first_token_s,
        e2e_s - network_s as ended_s
    from day_of
    where legs = 1 and served_llm = $llm and served_region = $region
    union all by name
    select request_id, leg, role, instance, hand_over_s, came_s, began_s, first_token_s, ended_s
    from legs
    where trace = $trace and day = $day::date and policy = $policy and llm = $llm and served_region = $region
)

select
    arrived.policy, request_id, visits.leg, visits.role, visits.instance,
    arrived.tier, arrived.app, arrived.input_tokens, arrived.output_tokens, arrived.preemptions,
    arrival_s,
    arrival_s + came_s - coalesce(hand_over_s, 0) as handed_from_s,
    arrival_s + came_s as queued_from_s,
    arrival_s + began_s as prefill_from_s,
    arrival_s + coalesce(first_token_s, began_s) as decode_from_s,
    arrival_s + ended_s as finished_s
from visits
inner join day_of as arrived using (request_id)
order by policy, instance, handed_from_s, request_id, leg
