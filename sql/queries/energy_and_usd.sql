-- What does each policy spend on each llm, in USD and, where the power of its boards was measured, in joules?
-- grain: trace, day, policy, llm
-- reads: energy
-- units: usd US dollars, kwh kilowatt-hours of the day, joules_per_token J; null where the boards were not measured
select
    trace, day, policy, llm, serving_gpu_hours, usd,
    joules / 3.6e6 as kwh,
    joules_per_token
from energy
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
order by trace, day, policy, llm
