-- forecast_leaderboard: the forecast methods compared over all endpoints, by tier and horizon.
-- grain: trace, tier, method, horizon_minutes
-- reads: forecast_losses, backtest_intervals
-- units: *_share 0 to 1, cpu_ms milliseconds of CPU per forecast of one series
-- wape_share = absolute error over real demand, over all endpoints
-- pinball_share = mean pinball loss of P50, P90 and P95 over the real demand
-- other columns as in forecast_losses, mean over the living endpoints
-- endpoints = number of living endpoints; p90_off_endpoints = those with a p90_note, see the mart forecast_losses
-- saved_share = share saved: how much lower the WAPE of the planned method is than that of this method; null for the planned method
-- saved_low_share, saved_high_share = its 95 % interval by a paired bootstrap of days
with combined as (
    select
        trace, tier, method, horizon_minutes,
        wape_share(sum(error), sum(came)) as wape_share,
        avg(smape_share) filter (is_living) as smape_share,
        avg(mase) filter (is_living) as mase,
        sum(pinball_p50 + pinball_p90 + pinball_p95) / 3 / nullif(sum(came), 0) as pinball_share,
        avg(below_p50_share) filter (is_living) as below_p50_share,
        avg(below_p90_share) filter (is_living) as below_p90_share,
        avg(below_p95_share) filter (is_living) as below_p95_share,
        avg(under_share) filter (is_living) as under_share,
        avg(above_peak_p90_share) filter (is_living) as above_peak_p90_share,
        count(*) filter (is_living) as endpoints,
        count(*) filter (is_living and p90_note is not null) as p90_off_endpoints,
        avg(fallback_share) filter (is_living) as fallback_share,
        1000 * avg(cpu_s) as cpu_ms
    from forecast_losses
    group by trace, tier, method, horizon_minutes
)

select
    combined.*,
    saved_share,
    low_share as saved_low_share,
    high_share as saved_high_share
from combined
left join backtest_intervals
    on combined.trace = backtest_intervals.trace
    and combined.tier = backtest_intervals.tier
    and combined.method = backtest_intervals.against
    and combined.horizon_minutes = backtest_intervals.horizon_minutes
