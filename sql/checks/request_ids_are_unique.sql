-- No two requests of a trace have the same id.
-- grain: trace, request_id
-- reads: requests
-- units: requests
with counted as (
    select trace, request_id, count(*) as requests
    from requests
    where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    group by trace, request_id
)

select * from counted
where requests > 1
