-- level_isolation: how well the highest level is isolated from the lowest, on today's instances.
-- grain: trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels
-- reads: level_trials
-- units: *_s seconds from the arrival, shares 0 to 1; made by fleetcast levels
-- needs_by = how TTFT targets and levels were assigned
-- load_factor = factor on the number of requests
-- top_missed_share = share of the requests of level 0 that missed their target
-- bottom_missed_share = the same for the lowest level
-- top_ttft_p99_s = time to first token, level 0
-- bottom_ttft_p99_s = the same for the lowest level
-- top_e2e_p99_s = time to the last token, level 0
-- bottom_e2e_p99_s = the same for the lowest level
select
    trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels, instances,
    1 - min_by(met / requests, level)                                     as top_missed_share,
    1 - max_by(met / requests, level)                                     as bottom_missed_share,
    arg_min_null(ttft_p99_s, level)                                       as top_ttft_p99_s,
    arg_max_null(ttft_p99_s, level)                                       as bottom_ttft_p99_s,
    arg_min_null(e2e_p99_s, level)                                        as top_e2e_p99_s,
    arg_max_null(e2e_p99_s, level)                                        as bottom_e2e_p99_s
from level_trials
where is_today and level <> 'all' and levels > 1 and stack <> 'edf'
group by all
