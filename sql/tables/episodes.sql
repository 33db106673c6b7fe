-- episodes: bursts and lasting level changes of a trace or one of its parts.
-- grain: trace, tier, region, llm, app, episode_kind, starts_at
-- reads: episodes
-- units: minutes; ratios
-- trace = name of the trace <- demand.trace
-- region varchar = where the requests come from, or all <- demand.region
-- llm varchar = the served network, or all <- demand.llm
-- tier varchar = urgency class, or all <- demand.tier
-- app varchar = the application, or all <- demand.app
-- episode_kind varchar = burst, or change (of the level)
-- starts_at timestamptz = the first minute of the burst, or the hour of the change, UTC <- demand.bucket_start
-- minutes bigint = length of the burst; null for a change
-- ratio double = the value over its reference: busiest minute over the median of the hours around; for a change the level after over the level before
-- extra_requests double = requests of the burst above that median; null for a change <- demand.requests
select * from episodes
where trace = coalesce($trace, trace)
order by trace, starts_at, episode_kind
