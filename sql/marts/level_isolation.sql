-- level_isolation: how far the highest level is kept from what the lowest suffers, on today's instances.
-- grain: trace, day, llm, region, needs_by, load_factor, stack, headroom_share, levels
-- reads: level_trials
-- units: *_s seconds from the arrival, shares 0 to 1; made by fleetcast levels
-- needs_by = how needs and levels were dealt
-- load_factor = requests for each one of the day
-- stack = how requests came to instances
-- headroom_share = of an instance's memory, for level 0
-- levels = how many there were, two or more
-- instances = that served
-- top_missed_share = of the requests of level 0, those that did not get what they needed in time
-- bottom_missed_share = the same of the lowest level
-- top_ttft_p99_s = to the first token, of level 0
-- bottom_ttft_p99_s = of the lowest level
-- top_e2e_p99_s = to the last token, of level 0
-- bottom_e2e_p99_s = of the lowest level
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
