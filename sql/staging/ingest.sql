-- What became of the landed file.
-- grain: file
-- reads: staged
-- units: rows; rows_out_of_order are kept rows earlier than the kept row before them (in the same member of
-- an archive), by up to largest_step_back_s seconds
with ordered as (
    select
        *,
        lag(arrived_at) over (
            partition by reason is null, if(getvariable('is_archive'), row, 0) order by row, part
        ) as before
    from staged
),

counted as (
    select
        getvariable('file') as file,
        getvariable('format') as format,
        getvariable('sha256') as sha256,
        count(*) as rows_in,
        count_if(reason is null)::bigint as rows_kept,
        count_if(reason is not null)::bigint as rows_quarantined,
        count_if(reason is null and arrived_at < before)::bigint as rows_out_of_order,
        epoch_us(max(before - arrived_at) filter (where reason is null and arrived_at < before)) / 1e6
            as largest_step_back_s,
        getvariable('clock')::varchar as clock,
        min(arrived_at) filter (where reason is null) as first_at,
        max(arrived_at) filter (where reason is null) as last_at
    from ordered
)

select * from counted
