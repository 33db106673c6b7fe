-- studies: what each policy cost and met under each variant of a study of data/studies, a row per figure; a view over trials for one release.
-- grain: study, variant, policy, metric, tier, llm
-- reads: trials
-- units: value in the unit that the metric names: *_hours hours, *_s seconds, *_share 0 to 1, usd US dollars, requests
-- study = its file in data/studies
-- variant = its table in that file; as_is where it has none <- trials.variant
-- policy = under which the fleet was scaled <- trials.policy
-- metric = as in trials <- trials.metric
-- tier = urgency class; all for what is not told by tier <- trials.tier
-- llm = the served network; all; or, of attainment_share, worst: of the llm that has least <- trials.llm
-- value = over all replayed days <- trials.value
select labels['study'] as study, variant, policy, metric, tier, llm, value
from trials
where experiment = 'study'
