-- The days to write: those that the file has rows on, and those that it had when it was ingested before.
-- grain: day
-- reads: staged, requests
-- units: days, UTC
with landed as (
    select day from staged
    where reason is null
),

landed_before as (
    select day from requests
    where trace = getvariable('trace') and source = getvariable('file')
),

both_of_them as (
    select day from landed
    union
    select day from landed_before
)

select * from both_of_them
order by day
