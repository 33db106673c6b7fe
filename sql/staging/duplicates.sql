-- Of requests with the same id the first stays; the trace's other files are older than the file that lands.
-- A place is the row, then the part of it, in one number: 2^20 parts to a row.
-- reads: staged, requests
update staged
set reason = 'its request_id is already in the trace, from ' || other.source
from requests as other
where
    other.trace = getvariable('trace')
    and other.source <> getvariable('file')
    and other.request_id = staged.request_id
    and staged.reason is null;

update staged
set reason = 'its request_id is used by an earlier row'
from (
    select
        request_id,
        min((row << 20) + part) as first_place
    from staged
    where reason is null
    group by request_id
    having count(*) > 1
) as repeated
where
    staged.request_id = repeated.request_id
    and (staged.row << 20) + staged.part > repeated.first_place
    and staged.reason is null;
