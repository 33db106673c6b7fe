-- legs_by_hour: the llms that answered the finished requests of an hour, drafts included, and their latencies.
-- grain: trace, day, policy, llm, served_llm, hour_start
-- reads: outcomes, legs
-- units: requests, shares 0 to 1, *_s seconds
-- trace = name of the trace <- outcomes.trace
-- day = UTC <- outcomes.day
-- policy = the scaling policy <- outcomes.policy
-- llm = the served network, as requested <- outcomes.llm
-- served_llm = the llm that answered <- outcomes.served_llm, legs.llm
-- hour_start = first instant of the hour of the arrivals, UTC <- outcomes.arrived_at
-- requests = number of requests: finished ones for the requested llm
-- answers = answers of this llm to them, without verdicts of a judge
-- stage_share = answers of the llm per request
-- kept_share = share of the requests whose final answer is from this llm; it sums to 1 over the llms
-- leg_mean_s = from the start of the stage to its last token <- outcomes.e2e_s, legs.ended_s
-- judge_mean_s = time to judge the answer before; null without a judge <- legs.hand_over_s
with finished as (
    select
        trace, day, policy, request_id, llm, served_llm, legs,
        date_trunc('hour', arrived_at) as hour_start,
        e2e_s - network_s as ended_s,
        earlier_s + held_s as came_s
    from outcomes
    where status = 'finished'
),

of_hours as (
    select trace, day, policy, llm, hour_start, count(*) as requests
    from finished
    group by trace, day, policy, llm, hour_start
),

-- An answer begins with a stage that has a first token; a later stage without one decodes the same answer.
visits as (
    select
        *,
        count(first_token_s) over (partition by trace, day, policy, request_id order by leg) as answer
    from legs
    where is_judging is distinct from true
),

several as (
    select
        trace, day, policy, request_id, answer,
        any_value(llm) as served_llm,
        min(came_s) as came_s,
        max(ended_s) as ended_s,
        max(hand_over_s) filter (where first_token_s is not null) as judge_s
    from visits
    where answer > 0
    group by trace, day, policy, request_id, answer
),

-- The windows cover only requests with several stages: most days have none.
ended as (
    select *, answer = max(answer) over (partition by trace, day, policy, request_id) as is_kept
    from several
),

answered as (
    select
        finished.* exclude (served_llm, legs, came_s, ended_s),
        coalesce(ended.served_llm, finished.served_llm) as served_llm,
        coalesce(ended.came_s, finished.came_s) as came_s,
        coalesce(ended.ended_s, finished.ended_s) as ended_s,
        judge_s,
        coalesce(is_kept, true) as is_kept
    from finished
    left join ended using (trace, day, policy, request_id)
),

counted as (
    select
        trace, day, policy, llm, served_llm, hour_start,
        count(*) as answers,
        count_if(is_kept) as kept,
        avg(ended_s - came_s) as leg_mean_s,
        quantile_cont(ended_s - came_s, 0.95) as leg_p95_s,
        avg(judge_s) as judge_mean_s
    from answered
    group by trace, day, policy, llm, served_llm, hour_start
)

select
    trace, day, policy, llm, served_llm, hour_start, requests, answers,
    answers / requests as stage_share,
    kept / requests as kept_share,
    leg_mean_s, leg_p95_s, judge_mean_s
from counted
inner join of_hours using (trace, day, policy, llm, hour_start)
