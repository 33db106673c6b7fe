-- Why was a request late? What its first token waited for, under each policy; without $request the latest interactive ones.
-- grain: policy, request_id
-- reads: outcomes, legs, fleet_hours
-- units: *_s seconds, *_tokens tokens, booting instances in the mean of the hour
-- instance = the one that made its first token; request_legs.sql tells of all that had it
-- earlier_s = answers of other llms that would not do, and judging them (a cascade)
-- held_s = from then until an instance had it: at the queue manager (tiers that it may hold), or while none served
-- waited_s = in that instance's queue
-- prefill_s = from admission to the first token
-- network_s = because another region served it
-- ahead = requests of that instance without a first token yet when this one joined, their input tokens
-- booting = instances of its llm on their way in the region that served it
with named as (
    select policy, unnest(max_by(request_id, coalesce(ttft_s, 1e9), 5)) as request_id
    from outcomes
    where trace = $trace and day = $day::date and (request_id = $request or ($request is null and not may_wait(is_held, tier)))
    group by policy
),

began as (
    select policy, request_id, max_by(instance, leg) as instance
    from legs
    where trace = $trace and day = $day::date and first_token_s is not null
    group by policy, request_id
),

stood as (
    select
        outcomes.* replace (coalesce(began.instance, outcomes.instance) as instance),
        arrived_at + to_microseconds((1e6 * (earlier_s + held_s))::bigint) as joined_at
    from outcomes
    left join began using (policy, request_id)
    where trace = $trace and day = $day::date
),

asked as (
    select stood.*
    from stood
    inner join named using (policy, request_id)
),

ahead as (
    select
        asked.policy, asked.request_id,
        count(*) as ahead,
        sum(other.input_tokens)::bigint as ahead_input_tokens
    from asked
    inner join stood as other
        on other.policy = asked.policy and other.instance = asked.instance
        and other.request_id <> asked.request_id
        and other.joined_at <= asked.joined_at
        and other.arrived_at + to_microseconds((1e6 * (other.ttft_s - other.network_s))::bigint) > asked.joined_at
    group by asked.policy, asked.request_id
),

booting as (
    select policy, llm, region, hour_start, sum(booting_s) / 3600 as booting
    from fleet_hours
    where trace = $trace and day = $day::date
    group by policy, llm, region, hour_start
),

told as (
    select
        asked.policy, asked.request_id, asked.arrived_at, asked.tier, asked.llm, asked.region,
        asked.served_region, asked.instance, asked.input_tokens, asked.output_tokens, asked.status,
        asked.ttft_s, asked.ttft_slo_s, asked.legs, asked.earlier_s, asked.held_s, asked.waited_s, asked.prefill_s, asked.network_s,
        asked.e2e_s, asked.preemptions,
        coalesce(ahead.ahead, 0) as ahead,
        coalesce(ahead.ahead_input_tokens, 0) as ahead_input_tokens,
        booting.booting as booting
    from asked
    left join ahead using (policy, request_id)
    left join booting
        on booting.policy = asked.policy and booting.llm = asked.served_llm
        and booting.region = asked.served_region and booting.hour_start = date_trunc('hour', asked.arrived_at)
)

select * from told
order by policy, ttft_s desc nulls last
