-- Demand in buckets of 1, 5, 15 or 60 minutes: demand_by(15) has the columns of demand, demand_series(15) a row per endpoint.
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

-- Demand per endpoint (llm and region): interactive input tokens are planned for, niw ones fill what is left.
create or replace macro demand_series(minutes) as table
    select
        trace,
        day,
        llm,
        region,
        bucket_start,
        coalesce(sum(input_tokens) filter (where tier <> 'niw'), 0)::bigint as interactive_input_tokens,
        coalesce(sum(input_tokens) filter (where tier = 'niw'), 0)::bigint as niw_input_tokens,
        coalesce(sum(output_tokens) filter (where tier <> 'niw'), 0)::bigint as interactive_output_tokens,
        coalesce(sum(output_tokens) filter (where tier = 'niw'), 0)::bigint as niw_output_tokens,
        coalesce(sum(requests) filter (where tier <> 'niw'), 0)::bigint as interactive_requests,
        coalesce(sum(requests) filter (where tier = 'niw'), 0)::bigint as niw_requests
    from demand_by(minutes)
    group by trace, day, llm, region, bucket_start;
