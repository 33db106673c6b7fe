-- work_by_step: input tokens a second of the requests of a trace's days, by llm and step of $step_s seconds from the first day on.
-- grain: llm, step
-- reads: requests
-- units: tokens per second
-- step = number of the step, 0 at midnight UTC of $first_day
select
    llm,
    cast(floor((epoch(arrived_at) - epoch($first_day::timestamptz)) / $step_s) as bigint) as step,
    sum(input_tokens) / $step_s                                                           as tokens_per_s
from requests
where trace = $trace and day between $first_day and $last_day and list_contains($tiers, tier)
group by llm, step
