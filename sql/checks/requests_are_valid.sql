-- Every request obeys the rules of the canonical request and is in the folder of its own day.
-- grain: trace, request_id
-- reads: requests
-- units: tokens, seconds; $tiers: those of the catalogue; without it any name is valid

select *
from requests
where
    trace = coalesce($trace, trace) and day = coalesce($day::date, day)
    and not coalesce(
        arrived_at::date = day
        and request_id is not null
        and region <> ''
        and llm <> ''
        and tier <> '' and coalesce(list_contains($tiers::varchar[], tier), true)
        and app <> ''
        and source <> ''
        and input_tokens >= 1
        and output_tokens >= 1
        and deadline_s > 0,
        false
    )
