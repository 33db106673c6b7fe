-- The import of a landed file: its row of ingests, the days with requests, and the reasons of refused rows.
-- grain: file
-- reads: ingests, requests, quarantine
-- units: rows
with dated as (
    select day
    from requests
    where trace = $trace and source = $file
    group by day
),

days_there as (
    select list(day order by day) as days
    from dated
),

refusals as (
    select reason, count(*) as rows
    from quarantine
    where trace = $trace and file = $file
    group by reason
),

refused as (
    select list({'reason': reason, 'rows': rows} order by rows desc, reason) as reasons
    from refusals
)

select ingests.* exclude (sha256), days, reasons
from ingests, days_there, refused
where trace = $trace and file = $file
