-- One day of a landed file: its requests.
-- grain: request_id
-- reads: staged
-- units: tokens, seconds
select
    * exclude (row, part, reason, day),
    getvariable('file') as source
from staged
where reason is null and day = getvariable('day')
order by arrived_at, request_id
