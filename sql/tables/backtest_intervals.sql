-- backtest_intervals: how much lower one method's error is than another's, over all cutoffs backtested.
-- grain: trace, tier, method, against, horizon_minutes
-- reads: backtest_intervals
-- units: shares of the error of `against`; below 0 the method is worse
-- trace = name of the trace <- backtests.trace
-- tier = urgency class, or interactive <- backtests.tier
-- method varchar = a name of models/forecast <- backtests.method
-- against varchar = another one <- backtests.method
-- horizon_minutes integer = how far ahead
-- cutoffs bigint = forecasts of each that were compared
-- saved_share double = how much lower the WAPE is <- backtests.forecast_per_s, backtests.actual_per_s
-- low_share double = lower end of its 95 % interval (paired bootstrap of days); null after a single day
-- high_share double = upper end
select * from backtest_intervals
where trace = coalesce($trace, trace)
