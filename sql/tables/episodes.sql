-- episodes: when a trace or one of its parts burst, and when its level changed for good.
-- grain: trace, tier, region, llm, app, kind, starts_at
-- reads: episodes
-- units: minutes; ratios
-- trace = name of the trace <- demand.trace
-- region varchar = where the requests come from, or all <- demand.region
-- llm varchar = the served network, or all <- demand.llm
-- tier varchar = urgency class, or all <- demand.tier
-- app varchar = the application, or all <- demand.app
-- kind varchar = burst, or change: of the level
-- starts_at timestamptz = its first minute, or the hour from which the level is another, UTC <- demand.bucket_start
-- minutes bigint = how long the burst lasted; null for a change
-- ratio double = of the fullest minute to the median of the hours around; of a change the level after in that before
-- extra_requests double = requests of the burst beyond that median; null for a change <- demand.requests
select * from episodes
where trace = coalesce($trace, trace)
order by trace, starts_at, kind
