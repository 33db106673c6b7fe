-- backtest_intervals: how much lower one method's error is than another's, over all cutoffs backtested.
-- grain: trace, method, against, horizon_minutes
-- reads: backtest_intervals
-- units: shares of the error of `against`; below 0 the method is worse
-- trace = name of the trace <- backtests.trace
-- method = a name of models/forecast <- backtests.method
-- against = another one <- backtests.method
-- horizon_minutes = how far ahead
-- cutoffs = forecasts of each that were compared
-- saved_share = how much lower the WAPE is <- backtests.input_tokens_per_s, backtests.actual_input_tokens_per_s
-- low_share = lower end of its 95 % interval (paired block bootstrap)
-- high_share = upper end
select * from backtest_intervals
where trace = coalesce($trace, trace)
