-- tier_verdicts: how each app without a given tier was judged by its first days, once and for all of the trace.
-- grain: trace, app
-- reads: tier_verdicts
-- units: confidence 0 to 1; hours; instants are UTC
-- trace = name of the trace
-- app varchar = the application
-- tier varchar = of its requests that land from then on; null where no rule spoke: they are dealt out
-- rule varchar = bursts or office_hours (sql/staging/patterns.sql)
-- confidence double = what the rule is worth
-- first_at timestamptz = its first request, where the hours begin that were looked at
-- hours bigint = how many were looked at
-- requests bigint = that came in them
select * from tier_verdicts
where trace = coalesce($trace, trace)
