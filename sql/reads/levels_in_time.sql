-- levels_in_time: attainment of each level at today's load.
-- grain: stack, levels, headroom_share, level
-- reads: level_trials
-- units: share
select stack, levels, headroom_share, level, met / requests as share
from level_trials
where
    trace = $trace and day = $day and llm = $llm and region = $region and needs_by = $needs_by
    and load_factor = $load_factor and is_today
