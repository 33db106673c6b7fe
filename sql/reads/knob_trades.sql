-- knob_trades: what the trials of each policy cost on the known days of a trace, and what they attained there.
-- grain: policy, reading, factor
-- reads: unseen_days, unseen_board
-- units: US dollars a day, shares 0 to 1
-- attained_ratio = attainment over target of the worst tier of the worst known day
-- is_frozen = whether the unseen days were scored with this trial
with points as (
    select policy, reading, factor, avg(total_usd) as usd_per_day, min(attained_ratio) as attained_ratio
    from unseen_days
    where trace = $trace and purpose = 'tuned'
    group by policy, reading, factor
)

select
    policy, points.usd_per_day, points.attained_ratio, board.total_usd, board.is_ranked,
    points.reading = board.reading and points.factor = board.factor as is_frozen
from points
inner join unseen_board as board using (policy)
where board.trace = $trace
order by policy, attained_ratio, usd_per_day
