-- The rows of the landed file that break a rule, with the rule and the original text.
-- grain: file, row
-- reads: staged, source
-- units: row counts data rows from 1; raw is cut after 4,000 characters
with refused as (
    select row, reason
    from staged
    where reason is not null
)

select
    getvariable('file') as file,
    refused.row,
    refused.reason,
    left(source.raw, 4000) as raw
from refused
inner join source on refused.row = source.row
order by row
