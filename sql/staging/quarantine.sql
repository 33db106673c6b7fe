-- The rows of the landed file that break a rule, with the rule and the text as it stood there.
-- grain: file, row
-- reads: staged, source
-- units: row counts data rows from 1
with refused as (
    select row, reason
    from staged
    where reason is not null
),

quoted as (
    select
        getvariable('file') as file,
        refused.row,
        refused.reason,
        source.raw
    from refused
    inner join source on refused.row = source.row
)

select * from quoted
order by row
