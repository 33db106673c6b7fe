-- backtest_intervals: how much lower the error of one method is than that of another, over all cutoffs of the backtest.
-- grain: trace, tier, method, against, horizon_minutes
-- reads: backtest_intervals
-- units: shares of the error of `against`; below 0 the method is worse
-- trace = name of the trace <- backtests.trace
-- tier = urgency class, or interactive <- backtests.tier
-- method varchar = the forecast method, a name of models/forecast <- backtests.method
-- against varchar = what the row is compared with: the other method <- backtests.method
-- horizon_minutes integer = all buckets that end at most this long after the cutoff
-- cutoffs bigint = number of forecasts of each method that were compared
-- saved_share double = share saved: how much lower the WAPE of the method is <- backtests.forecast_per_s, backtests.actual_per_s
-- low_share double = lower end of its 95 % interval (paired bootstrap of days); null after a single day
-- high_share double = upper end
select * from backtest_intervals
where trace = coalesce($trace, trace)
