-- How good are the forecasts? Error, coverage of the P90, hours whose peak exceeded its forecast, by tier, method and llm.
-- grain: trace, day, measure, tier, method, llm
-- reads: forecast_errors
-- units: *_share 0 to 1, as in sql/marts/forecast_errors.sql
select * from forecast_errors
where trace = coalesce($trace, trace) and day = coalesce($day::date, day)
order by trace, day, measure, tier, llm, wape_share
