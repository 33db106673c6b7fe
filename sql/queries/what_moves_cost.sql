-- What do migrations cost, and what do they improve? Stacks with migrations compared with the same stacks without, on today's instances.
-- grain: llm, region, needs_by, load_factor, stack, headroom_share, levels
-- reads: level_trials, level_value
-- units: *_s seconds, shares 0 to 1, instances; made by fleetcast levels
-- without = the same stack without migrations
-- moves_per_request = migrations per request, of queued and of decoding requests
-- given_up_share = aborted share of the started live migrations: the request finished or was preempted before, or the other instance stopped
-- stopped_p99_s = for live migrations: last token on one instance to first token on the other
-- met_gain_share, worst_need_gain_share = additional share of requests in time; of all requests, and of the target with the worst attainment
-- ttft_p99_gain_s, e2e_p99_gain_s = reduction compared with the stack without migrations
-- preemptions_saved = reduction compared with the stack without migrations
-- instances_saved = reduction of the instances that meet every target
with pairs as (
    select * from (values ('llumnix', 'freeness'), ('jsq_moves', 'jsq')) as pair (stack, without)
),

today as (
    select level_trials.*, level_value.instances as fewest
    from level_trials
    inner join level_value using (trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels)
    where trace = $trace and day = $day::date and is_today and level = 'all'
)

select
    moved.llm, moved.region, moved.needs_by, moved.load_factor, moved.stack, moved.headroom_share, moved.levels,
    pairs.without,
    (moved.moved_queued + moved.moved_live) / moved.requests              as moves_per_request,
    moved.moves_given_up / nullif(moved.moved_live, 0)                    as given_up_share,
    moved.stopped_p99_s,
    moved.met / moved.requests - still.met / still.requests               as met_gain_share,
    moved.worst_need_share - still.worst_need_share                       as worst_need_gain_share,
    still.ttft_p99_s - moved.ttft_p99_s                                   as ttft_p99_gain_s,
    still.e2e_p99_s - moved.e2e_p99_s                                     as e2e_p99_gain_s,
    still.preemptions - moved.preemptions                                 as preemptions_saved,
    still.fewest - moved.fewest                                           as instances_saved
from today as moved
inner join pairs using (stack)
inner join today as still
    on still.stack = pairs.without
    and still.llm = moved.llm and still.region = moved.region and still.needs_by = moved.needs_by
    and still.load_factor = moved.load_factor and still.levels = moved.levels
    and (still.headroom_share = moved.headroom_share or moved.levels = 1)
order by moved.llm, moved.region, moved.needs_by, moved.load_factor, moved.stack, moved.headroom_share, moved.levels
