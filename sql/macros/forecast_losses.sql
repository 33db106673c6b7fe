-- forecast_losses: the formulas of how wrong a forecast was, once (tests/forecast_scores.py says some in Python, a test compares).
-- units: those of the demand for pinball_loss and peak; *_share 0 to 1
-- Pinball loss of a quantile (Koenker and Bassett, 1978): least in expectation at the true one.
create or replace macro pinball_loss(actual, quantile, level) as
    greatest(level * (actual - quantile), (level - 1) * (actual - quantile));

-- Absolute error in the mean of both: 0 where both are 0, 2 at most (Makridakis, 1993).
create or replace macro smape_term(actual, mean) as
    coalesce(2 * abs(actual - mean) / nullif(actual + mean, 0), 0);

-- What is wrong with a P90 by the share of hours whose peak stayed below it; null from 87 to 93 %, and of few hours.
create or replace macro p90_note(below_share, hours) as
    case
        when hours < 100 then null
        when below_share < 0.87 then 'P90 too low'
        when below_share > 0.93 then 'P90 too high'
    end;

-- Sum of absolute errors in the sum of what came; null where nothing came.
create or replace macro wape_share(error, came) as
    error / nullif(came, 0);
