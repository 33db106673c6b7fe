-- One day of a trace: what the landed file brings, beside what other files brought before.
-- grain: request_id
-- reads: staged, requests
-- units: tokens, seconds
with landed as (
    select
        * exclude (row, part, reason, day),
        getvariable('file') as source
    from staged
    where reason is null and day = getvariable('day')
),

there_before as (
    select * exclude (trace, day)
    from requests
    where
        trace = getvariable('trace')
        and day = getvariable('day')
        and source <> getvariable('file')
),

both_of_them as (
    select * from landed
    union all by name
    select * from there_before
)

select * from both_of_them
order by arrived_at, request_id
