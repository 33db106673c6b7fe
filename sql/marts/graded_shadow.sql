-- graded_shadow: what a day's advice would have saved and missed against the fleet that ran, with the error of the replay beside it.
-- grain: trace, day, policy, tier
-- reads: graded_decisions, shadow_runs
-- units: *_gpu_hours GPU-hours and *_usd US dollars of the whole day, *_hours hours of endpoints, *_share 0 to 1, *_s seconds
-- saved_gpu_hours = those that ran less those advised; below 0 the advice is dearer
-- advised_short_hours = in which fewer instances were advised than the true demand needed
-- ran_short_hours = in which fewer ran than it needed
-- ran_in_time_share = of the tier's requests, whose first token came in time when the fleet that ran is replayed
-- advised_in_time_share = the same of the advised fleet
-- gained_share = advised less ran: below 0 the advice would have missed more
-- measured_in_time_share = of those whose waiting the trace tells; null where it tells none
-- replay_error_share = the replay of what ran less what was measured; null where nothing was
-- is_beyond_error = whether the gain is larger than that error: else it says nothing
with of_days as (
    select
        trace, day, policy,
        sum(ran_instances * gpus_per_instance) as ran_gpu_hours,
        sum(advised_instances * gpus_per_instance)::double as advised_gpu_hours,
        sum(saved_gpu_hours) as saved_gpu_hours,
        sum(saved_usd) as saved_usd,
        count_if(advised_instances < needed_instances)::bigint as advised_short_hours,
        count_if(ran_instances < needed_instances)::bigint as ran_short_hours
    from graded_decisions
    group by trace, day, policy
),

of_tiers as (
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
    from of_days
    inner join of_tiers using (trace, day, policy)
)

select
    *,
    abs(gained_share) > abs(replay_error_share) as is_beyond_error
from judged
