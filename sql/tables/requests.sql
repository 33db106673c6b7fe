-- requests: what arrived: one row per request of a generated or landed trace, by trace and day.
-- grain: trace, request_id
-- reads: requests
-- units: tokens; *_s seconds; instants are UTC
-- trace = name of the trace
-- day = UTC day of the arrival
-- request_id = a number that no other request of the trace has
-- arrived_at = instant of the arrival, UTC
-- region = where the request comes from
-- llm = the served network that it asks for
-- tier = urgency class: iw_fast, iw_normal, niw
-- app = the application that sends it
-- input_tokens = tokens of its prompt
-- output_tokens = tokens that it will get
-- deadline_s = by when its last token is wanted, from its arrival
-- source = the landed file, or how it was made
select * from requests
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
