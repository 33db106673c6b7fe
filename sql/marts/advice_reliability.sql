-- advice_reliability: of the days that were promised with about the same share, on how many the promise was kept.
-- grain: trace, is_promised, promised_from_share
-- reads: graded_advice
-- units: days; *_share 0 to 1
-- promised_from_share = the days had a promised_share from here to a tenth above
-- promised_share = of the versions of the day, the share that attained all targets; mean of these days
-- graded_days = advised days that have landed and were replayed
-- target_days = of these, days on which every tier attained its target: the promise was kept
-- inside_days = of these, days on which share in time and cost lay in their intervals, promised for nine days in ten
-- target_share, inside_share = the same over graded_days
select
    trace, is_promised,
    least(floor(10 * promised_share + 1e-9), 9) / 10 as promised_from_share,
    avg(promised_share) as promised_share,
    count(*)::bigint as graded_days,
    count_if(is_on_target)::bigint as target_days,
    count_if(is_inside)::bigint as inside_days,
    count_if(is_on_target) / count(*) as target_share,
    count_if(is_inside) / count(*) as inside_share
from graded_advice
where in_time_share is not null
group by trace, is_promised, promised_from_share
