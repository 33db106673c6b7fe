-- The import of the landed file.
-- grain: file
-- reads: staged
-- units: rows; rows_out_of_order are kept rows earlier than the kept row before them (in the same member of
-- an archive), by up to largest_step_back_s seconds
with ordered as (
    select
        row,
        reason,
        arrived_at,
        lag(arrived_at) over in_file as arrived_before,
        lag(row) over in_file as row_before
    from staged
    window in_file as (partition by reason is null order by row, part)
),

stepped as (
    select
        *,
        if(
            reason is null and arrived_at < arrived_before
            and not (getvariable('is_archive') and row <> row_before),
            arrived_before - arrived_at,
            null
        ) as step_back
    from ordered
)

select
    getvariable('file') as file,
    getvariable('format') as format,
    getvariable('sha256') as sha256,
    count(*) as rows_in,
    count_if(reason is null)::bigint as rows_kept,
    count_if(reason is not null)::bigint as rows_quarantined,
    count(step_back) as rows_out_of_order,
    epoch_us(max(step_back)) / 1e6 as largest_step_back_s,
    getvariable('clock')::varchar as clock,
    min(arrived_at) filter (where reason is null) as first_at,
    max(arrived_at) filter (where reason is null) as last_at,
    getvariable('columns')::varchar as columns
from stepped
