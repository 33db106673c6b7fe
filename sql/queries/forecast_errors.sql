-- How good are the forecasts? Error, whether P90 holds, how often the hour's peak was above its forecast, per tier, method and llm.
-- grain: trace, day, measure, tier, method, llm
-- reads: forecast_errors
-- units: *_share 0 to 1, as in sql/marts/forecast_errors.sql
select * from forecast_errors
order by trace, day, measure, tier, llm, wape_share
