-- studies: cost and attainment of each policy in each variant of a study of data/studies, a row per metric; a view over trials for one release.
-- grain: study, variant, policy, metric, tier, llm
-- reads: trials
-- units: value in the unit that the metric names: *_hours hours, *_s seconds, *_share 0 to 1, usd US dollars, requests
-- study = name of the study: its file in data/studies
-- variant = what is varied: a table of the study's file; as_is where it has none <- trials.variant
-- policy = the scaling policy <- trials.policy
-- metric = name of the metric, see trials <- trials.metric
-- tier = urgency class; all for metrics without a tier <- trials.tier
-- llm = the served network; all; or, for attainment_share, worst: the llm with the lowest attainment <- trials.llm
-- value = value of the figure or metric over all replayed days <- trials.value
select labels['study'] as study, variant, policy, metric, tier, llm, value
from trials
where experiment = 'study'
