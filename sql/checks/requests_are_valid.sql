-- Every request keeps the rules of the canonical request and lies in the folder of its own day.
-- grain: trace, request_id
-- reads: requests
-- units: tokens, seconds
with offending as (
    select *
    from requests
    where
        trace = coalesce($trace, trace) and day = coalesce($day::date, day)
        and not coalesce(
            arrived_at::date = day
            and request_id is not null
            and region <> ''
            and llm <> ''
            and tier in ('iw_fast', 'iw_normal', 'niw')
            and app <> ''
            and source <> ''
            and input_tokens >= 1
            and output_tokens >= 1
            and deadline_s > 0,
            false
        )
)

select * from offending
