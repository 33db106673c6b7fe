-- Every row of a landed file was kept or quarantined, and is still in its table.
-- grain: trace, file
-- reads: ingests, requests, answers, quarantine
-- units: rows
with kept as (
    select trace, source as file, count(*) as found_kept
    from requests
    where trace = coalesce($trace, trace)
    group by trace, source
    union all
    select trace, file, count(*) as found_kept
    from answers
    where trace = coalesce($trace, trace)
    group by trace, file
),

refused as (
    select trace, file, count(*) as found_quarantined
    from quarantine
    where trace = coalesce($trace, trace)
    group by trace, file
),

counted as (
    select
        trace, file, rows_in, rows_kept, rows_quarantined,
        coalesce(found_kept, 0) as found_kept,
        coalesce(found_quarantined, 0) as found_quarantined
    from ingests
    left join kept using (trace, file)
    left join refused using (trace, file)
    where trace = coalesce($trace, trace)
)

select * from counted
where
    rows_in <> rows_kept + rows_quarantined
    or rows_kept <> found_kept
    or rows_quarantined <> found_quarantined
