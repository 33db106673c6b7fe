-- silences: runs of ten-minute slots without any request where many were to be expected: nobody was collecting.
-- Expected is the median of the slots at the same hour of the day (of the six hours around in a trace shorter
-- than three days). From 20 on an empty slot is no chance: exp(-20) for Poisson arrivals. A trace that comes in
-- bursts, half of its slots empty, has a median of 0 and no silence.
-- grain: silence_start
-- reads: requests
-- units: requests; a silence covers [silence_start, silence_end), UTC
-- silence_start = first instant of the first empty slot
-- silence_end = first instant after the last one
-- slots = empty slots of ten minutes
-- expected_requests = requests that were to be expected in them
with filled as (
    select time_bucket(interval '10 minutes', arrived_at) as slot, count(*) as requests
    from requests
    where trace = $trace
    group by slot
),

ends as (
    select min(slot) as first_slot, max(slot) as last_slot
    from filled
),

every_slot as (
    select unnest(generate_series(first_slot, last_slot, interval '10 minutes')) as slot, first_slot, last_slot
    from ends
),

counted as (
    select slot, last_slot - first_slot >= interval '3 days' as is_long, coalesce(requests, 0) as requests
    from every_slot
    left join filled using (slot)
),

compared as (
    select
        *,
        if(
            is_long,
            median(requests) over (partition by hour(slot)),
            median(requests) over (order by slot rows between 18 preceding and 18 following)
        ) as expected
    from counted
),

empty as (
    select *, slot - interval '10 minutes' * row_number() over (order by slot) as run
    from compared
    where requests = 0 and expected >= 20
),

runs as (
    select
        min(slot) as silence_start,
        max(slot) + interval '10 minutes' as silence_end,
        count(*) as slots,
        sum(expected)::double as expected_requests
    from empty
    group by run
)

select * from runs
order by silence_start
