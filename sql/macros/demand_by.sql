-- Demand in buckets of 1, 5, 15 or 60 minutes: demand_by(15) has the columns of demand, demand_series(15) sums over apps.
-- grain: trace, region, llm, tier, app, bucket_start
-- reads: demand
-- units: tokens; a bucket covers [bucket_start, bucket_start + minutes), UTC
create or replace macro demand_by(minutes) as table
    select
        trace,
        day,
        region,
        llm,
        tier,
        app,
        time_bucket(to_minutes(minutes), bucket_start) as bucket_start,
        sum(requests)::bigint      as requests,
        sum(input_tokens)::bigint  as input_tokens,
        sum(output_tokens)::bigint as output_tokens
    from demand
    group by trace, day, region, llm, tier, app, time_bucket(to_minutes(minutes), bucket_start);

-- Demand per endpoint (llm and region) and tier: the series for forecasts and plans.
create or replace macro demand_series(minutes) as table
    select
        trace,
        day,
        llm,
        region,
        tier,
        bucket_start,
        sum(requests)::bigint      as requests,
        sum(input_tokens)::bigint  as input_tokens,
        sum(output_tokens)::bigint as output_tokens
    from demand_by(minutes)
    group by trace, day, llm, region, tier, bucket_start;
