-- What is a forecast worth? Cost and missed requests of each policy, compared with the reactive policy on the same day.
-- grain: trace, day, policy
-- reads: scoreboard
-- units: *_gpu_hours GPU-hours, *_usd US dollars, *_share 0 to 1
with reactive as (
    select trace, day, gpu_hours, usd, missed_share
    from scoreboard
    where policy = 'reactive'
)

select
    trace, day, policy,
    scoreboard.gpu_hours as gpu_hours,
    reactive.gpu_hours - scoreboard.gpu_hours as saved_gpu_hours,
    reactive.usd - scoreboard.usd as saved_usd,
    scoreboard.missed_share as missed_share,
    reactive.missed_share - scoreboard.missed_share as fewer_missed_share
from scoreboard
inner join reactive using (trace, day)
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
order by trace, day, saved_usd desc
