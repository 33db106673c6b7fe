-- graded_shadow: what each tier would have gained or missed by a day's advice, with the error of the replay beside it; graded_days has what it costs.
-- grain: trace, day, policy, tier
-- reads: shadow_runs
-- units: *_share 0 to 1, *_s seconds
-- ran_in_time_share = of the tier's requests, whose first token came in time when the fleet that ran is replayed
-- advised_in_time_share = the same of the advised fleet
-- gained_share = advised less ran: below 0 the advice would have missed more
-- measured_in_time_share = of those whose waiting the trace tells; null where it tells none
-- replay_error_share = the replay of what ran less what was measured; null where nothing was
-- is_beyond_error = whether the gain is larger than that error: else it says nothing
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
