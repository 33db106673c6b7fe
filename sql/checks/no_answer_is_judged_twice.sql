-- No llm answers a request twice: an answer is judged once, and the next answer is from another llm.
-- grain: trace, day, policy, request_id, llm
-- reads: legs
-- units: answers, each with a first token
select
    trace, day, policy, request_id, llm,
    count(first_token_s) as answers
from legs
where is_judging is distinct from true and trace = coalesce($trace, trace) and day = coalesce($day::date, day)
group by trace, day, policy, request_id, llm
having count(first_token_s) > 1
