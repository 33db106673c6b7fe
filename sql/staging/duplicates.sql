-- Of requests with the same id the first stays; the trace's other files are older than the file that lands.
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
        min(row) as first_row
    from staged
    where reason is null
    group by request_id
    having count(*) > 1
) as repeated
where
    staged.request_id = repeated.request_id
    and staged.row > repeated.first_row
    and staged.reason is null;
