-- day_wape: error of the day's interactive forecasts with the planned method, over all endpoints.
-- grain: one row
-- reads: forecasts
-- units: wape_share 0 upwards; $measure and $tier of forecasts
select wape_share(sum(abs(forecast_per_s - actual_per_s)), sum(actual_per_s)) as wape_share
from forecasts
where
    trace = $trace and day = $day and method = $method and measure = $measure and tier = $tier
    and actual_per_s is not null
