-- The outcome of a request with several stages is that of its last stage: its llm, its instance, its end.
-- grain: trace, day, policy, request_id
-- reads: outcomes, legs
-- units: seconds
with last_legs as (
    select
        trace, day, policy, request_id,
        arg_max(llm, leg) filter (where is_judging is distinct from true) as last_llm,
        arg_max(instance, leg) as last_instance,
        max(ended_s) as last_ended_s
    from legs
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, day, policy, request_id
),

finished_requests as (
    select trace, day, policy, request_id, served_llm, instance, e2e_s - network_s as ended_s
    from outcomes
    where
        trace = coalesce($trace, trace) and day = coalesce($day::date, day)
        and status = 'finished' and legs > 1
)

select * from finished_requests
left join last_legs using (trace, day, policy, request_id)
where
    served_llm is distinct from last_llm
    or instance is distinct from last_instance
    or coalesce(abs(ended_s - last_ended_s) > 1e-6, true)
