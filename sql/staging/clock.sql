-- An hour that a local clock shows twice, when it is set back: rows before the step are of the first hour. instant() takes the second
-- hour for all. Only for a file whose mapping names a time zone as its clock, and in the order of its rows.
-- reads: staged
update staged
set arrived_at = staged.arrived_at - interval '1 hour', day = (staged.arrived_at - interval '1 hour')::date
from (
    with twice as (
        select
            row, part, arrived_at, date_trunc('day', arrived_at) as of_day,
            arrived_at < lag(arrived_at) over (partition by date_trunc('day', arrived_at) order by row, part)
                - interval '30 minutes' as is_step
        from staged
        where
            getvariable('zone') is not null
            and timezone(getvariable('zone'), arrived_at) = timezone(getvariable('zone'), arrived_at - interval '1 hour')
    ),

    steps as (
        select of_day, min((row << 32) + part) as step_place
        from twice
        where is_step
        group by of_day
    )

    select row, part
    from twice
    inner join steps using (of_day)
    where (row << 32) + part < step_place
) as first_hour
where staged.row = first_hour.row and staged.part = first_hour.part;
