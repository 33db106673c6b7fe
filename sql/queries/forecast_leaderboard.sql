-- Which forecast method is best, ten minutes, one hour and two hours ahead? Run fleetcast backtest before.
-- grain: trace, tier, horizon_minutes, method
-- reads: forecast_leaderboard
-- units: *_share 0 to 1, cpu_ms milliseconds, as in sql/marts/forecast_leaderboard.sql
select * from forecast_leaderboard
order by trace, tier, horizon_minutes, wape_share
