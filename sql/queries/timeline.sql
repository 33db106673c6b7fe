-- When was each request of one endpoint queued, prefilled and decoded? One hour of one policy, for a timeline.
-- grain: policy, request_id
-- reads: outcomes
-- units: *_s seconds of the day, *_tokens tokens; $policy, $llm, $region (where it was served) and $hour choose
-- queued_from_s = when its instance got it
with chosen as (
    select *, epoch(arrived_at) - epoch($day::timestamp) as arrival_s
    from outcomes
    where trace = $trace and day = $day::date and policy = $policy
        and llm = $llm and served_region = $region and hour(arrived_at) = $hour
        and status = 'finished'
),

timed as (
    select
        policy, request_id, instance, tier, app, input_tokens, output_tokens, preemptions,
        arrival_s,
        arrival_s + held_s as queued_from_s,
        arrival_s + held_s + waited_s as prefill_from_s,
        arrival_s + held_s + waited_s + prefill_s as decode_from_s,
        arrival_s + e2e_s - network_s as finished_s
    from chosen
)

select * from timed
order by policy, instance, queued_from_s, request_id
