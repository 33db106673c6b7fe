-- graded_shadow: SLO attainment of each tier under a day's plan and on the fleet that ran, with the error of the replay; graded_days has the cost.
-- grain: trace, day, policy, tier
-- reads: shadow_runs
-- units: *_share 0 to 1, *_s seconds
-- requests = number of requests: of the covered hours (graded_days), which alone are replayed
-- ran_in_time_share = share of the tier's requests with TTFT within its target, in the replay of the fleet that ran
-- advised_in_time_share = the same for the planned fleet
-- gained_share = planned less ran: below 0 the plan would have missed more
-- measured_in_time_share = the measured share, over requests with a measured TTFT in the trace; null without measurements
-- replay_error_share = replayed share of the fleet that ran less the measured share; null without measurements
-- is_beyond_error = whether the gain is larger than that error: if not, it means nothing
with of_tiers as (
    select
        trace, day, policy, tier,
        max(requests) as requests,
        max(in_time / requests) filter (where fleet = 'ran') as ran_in_time_share,
        max(in_time / requests) filter (where fleet = 'advised') as advised_in_time_share,
        max(measured_in_time / nullif(measured, 0)) filter (where fleet = 'ran') as measured_in_time_share,
        max(ttft_p95_s) filter (where fleet = 'ran') as ran_ttft_p95_s,
        max(ttft_p95_s) filter (where fleet = 'advised') as advised_ttft_p95_s,
        max(measured_ttft_p95_s) filter (where fleet = 'ran') as measured_ttft_p95_s
    from shadow_runs
    group by trace, day, policy, tier
),

judged as (
    select
        *,
        advised_in_time_share - ran_in_time_share as gained_share,
        ran_in_time_share - measured_in_time_share as replay_error_share
    from of_tiers
)

select
    *,
    abs(gained_share) > abs(replay_error_share) as is_beyond_error
from judged
