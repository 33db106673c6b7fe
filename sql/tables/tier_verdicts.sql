-- tier_verdicts: tiers inferred from the first days of each app without a given tier, once per trace.
-- grain: trace, app
-- reads: tier_verdicts
-- units: confidence 0 to 1; hours; instants are UTC
-- trace = name of the trace
-- app varchar = the application
-- tier varchar = urgency class: that of later requests of the app; null where no rule applied: they follow the mapping's shares
-- tier_rule varchar = bursts or office_hours (sql/staging/patterns.sql)
-- confidence double = confidence in the rule
-- first_at timestamptz = first arrival of the app, the start of the observed hours
-- hours bigint = number of hours, observed
-- requests bigint = number of requests in these hours
select * from tier_verdicts
where trace = coalesce($trace, trace)
