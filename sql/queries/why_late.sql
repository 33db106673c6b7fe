-- Why was a request late? The parts of its time to first token under each policy; without $request the three worst late interactive requests of each policy.
-- grain: policy, request_id
-- reads: outcomes, legs, fleet_hours
-- no rows: No interactive request was late.
-- units: *_s seconds, *_tokens tokens, booting mean number of booting instances in the hour
-- target_ratio = its value over the target that it missed most; infinity: never served
-- instance = the instance that made its first token; request_legs.sql has all instances
-- earlier_s = time of rejected answers of other llms, and of judging them (a cascade)
-- held_s = time from then until an instance took the request: deferral by the queue manager, or no serving instance
-- waited_s = time in that instance's queue
-- prefill_s = time from admission to the first token
-- network_s = time outside the engine: front end ([fleet] frontend_s), and network to another region
-- ahead = requests of that instance without a first token when this one joined, and their input tokens
-- booting = booting instances of its llm in the region that served it
with named as (
    select policy, unnest(max_by(request_id, ratio, 3)) as request_id
    from (
        select *, target_ratio(ttft_s, tpot_s, e2e_s, ttft_slo_s, tpot_slo_s, deadline_s) as ratio
        from outcomes
        where trace = $trace and day = $day::date
    )
    where request_id = $request or ($request is null and not may_wait(is_held, tier) and ratio > 1)
    group by policy
),

began as (
    select policy, request_id, max_by(instance, leg) as instance
    from legs
    where trace = $trace and day = $day::date and first_token_s is not null
    group by policy, request_id
),

-- Up to fifty ids, and instances below, become a filter of the scan: a second of CPU time instead of five.
found as (
    select * from outcomes
    where trace = $trace and day = $day::date and request_id in (select request_id from named)
),

chosen as (
    select
        found.* replace (coalesce(began.instance, found.instance) as instance),
        arrived_at + to_microseconds((1e6 * (earlier_s + held_s))::bigint) as joined_at
    from found
    inner join named using (policy, request_id)
    left join began using (policy, request_id)
),

places as (
    select policy, instance, epoch_us(min(joined_at)) as first_us, max(joined_at) as last_at
    from chosen
    group by policy, instance
),

-- The instances of `began` come apart: the filter is on a column of the files.
neighbours as (
    select policy, request_id, instance, arrived_at, earlier_s, held_s, ttft_s, network_s, input_tokens
    from outcomes
    inner join places using (policy, instance)
    anti join began using (policy, request_id)
    where trace = $trace and day = $day::date and arrived_at <= last_at
        and first_us - epoch_us(arrived_at) < (1e6 * (ttft_s - network_s))::bigint
    union all
    select policy, request_id, began.instance, arrived_at, earlier_s, held_s, ttft_s, network_s, input_tokens
    from outcomes
    inner join began using (policy, request_id)
    where trace = $trace and day = $day::date
),

ahead as (
    select
        chosen.policy, chosen.request_id,
        count(*) as ahead,
        sum(other.input_tokens)::bigint as ahead_input_tokens
    from chosen
    inner join neighbours as other
        on other.policy = chosen.policy and other.instance = chosen.instance
        and other.request_id <> chosen.request_id
        and other.arrived_at <= chosen.joined_at
    where
        epoch_us(chosen.joined_at) - epoch_us(other.arrived_at) >= (1e6 * (other.earlier_s + other.held_s))::bigint
        and epoch_us(chosen.joined_at) - epoch_us(other.arrived_at) < (1e6 * (other.ttft_s - other.network_s))::bigint
    group by chosen.policy, chosen.request_id
),

booting as (
    select policy, llm, served_region, hour_start, sum(booting_s) / 3600 as booting
    from fleet_hours
    where trace = $trace and day = $day::date
    group by policy, llm, served_region, hour_start
)

select
    chosen.policy, chosen.request_id, chosen.arrived_at, chosen.tier, chosen.llm, chosen.region,
    chosen.served_region, chosen.instance, chosen.input_tokens, chosen.output_tokens, chosen.status,
    chosen.ttft_s, chosen.ttft_slo_s, chosen.legs, chosen.earlier_s, chosen.held_s, chosen.waited_s, chosen.prefill_s, chosen.network_s,
    chosen.e2e_s, chosen.preemptions,
    target_ratio(chosen.ttft_s, chosen.tpot_s, chosen.e2e_s, chosen.ttft_slo_s, chosen.tpot_slo_s, chosen.deadline_s) as target_ratio,
    coalesce(ahead.ahead, 0) as ahead,
    coalesce(ahead.ahead_input_tokens, 0) as ahead_input_tokens,
    booting.booting as booting
from chosen
left join ahead using (policy, request_id)
left join booting
    on booting.policy = chosen.policy and booting.llm = chosen.served_llm
    and booting.served_region = chosen.served_region and booting.hour_start = date_trunc('hour', chosen.arrived_at)
order by policy, target_ratio desc, ttft_s desc nulls last
