-- backtest_intervals: how much lower one method's error is than another's, over all cutoffs backtested.
-- grain: trace, tier, method, against, horizon_minutes
-- reads: backtest_intervals
-- units: shares of the error of `against`; below 0 the method is worse
-- trace = name of the trace <- backtests.trace
-- tier = urgency class, or interactive <- backtests.tier
-- method = a name of models/forecast <- backtests.method
-- against = another one <- backtests.method
-- horizon_minutes = how far ahead
-- cutoffs = forecasts of each that were compared
-- saved_share = how much lower the WAPE is <- backtests.forecast_per_s, backtests.actual_per_s
-- low_share = lower end of its 95 % interval (paired bootstrap of days); null after a single day
-- high_share = upper end
select * from backtest_intervals
where trace = coalesce($trace, trace)
