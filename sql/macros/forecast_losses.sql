-- forecast_losses: the formulas of forecast errors, in one place (tests/forecast_scores.py has some in Python, a test compares).
-- units: those of the demand for pinball_loss and peak; *_share 0 to 1
-- Pinball loss of a quantile (Koenker and Bassett, 1978): its expectation is smallest at the true quantile.
create or replace macro pinball_loss(actual, quantile, level) as
    greatest(level * (actual - quantile), (level - 1) * (actual - quantile));

-- Absolute error over the mean of both: 0 where both are 0, at most 2 (Makridakis, 1993).
create or replace macro smape_term(actual, mean) as
    coalesce(2 * abs(actual - mean) / nullif(actual + mean, 0), 0);

-- Verdict on a P90 by the share of hours whose peak stayed below it; null from 87 to 93 %, and for few hours.
create or replace macro p90_note(below_share, hours) as
    case
        when hours < 100 then null
        when below_share < 0.87 then 'P90 too low'
        when below_share > 0.93 then 'P90 too high'
    end;

-- Sum of absolute errors over the sum of the real demand; null where that is 0.
create or replace macro wape_share(error, came) as
    error / nullif(came, 0);
