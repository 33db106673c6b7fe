-- advice_forecast_errors: errors of the forecasts made at midnight, over all endpoints.
-- grain: one row
-- reads: forecast_coverage
-- units: hours; shares
select
    sum(hours)::bigint as hours,
    sum(hours * wape_share) / sum(hours) as wape_share,
    sum(hours * peak_below_p90_share) / sum(hours) as peak_below_p90_share
from forecast_coverage
where trace = $trace and measure = 'input_tokens' and tier = $tier and method = $method and made = 'day_ahead'
