-- silences: gaps in the data: before the first request, and where requests stop for longer than chance explains.
-- A slot of ten minutes is judged by the slots before it only, so days that land later change nothing about it.
-- The expected requests of an empty slot are the smaller of two values: those of the five slots before the last slot with
-- a request, and those that nine in ten of the earlier slots of its hour had, on the same weekday or else on days of
-- the same kind (Monday to Friday; Saturday and Sunday); on the first day, three in four slots of any hour. A
-- gap begins in the slot where 20 requests were expected and none arrived, within three hours of the last
-- request: probability exp(-20) for Poisson arrivals. It lasts until the next request. Load that stops regularly is no
-- gap, and load that stopped three times in the week before, like bursts, is none: its empty hours and days are zero.
-- If the data end at a quiet hour, the rest of the last day is a gap where 20 requests usually come in it.
-- grain: silence_end
-- reads: requests
-- units: requests; a gap covers [silence_start, silence_end), UTC
-- silence_start timestamptz = first instant of the first slot of the gap; null before the first request
-- silence_end timestamptz = first instant of the slot of the next request (the minute of the very first one); null while there is none
-- slots bigint = slots of ten minutes in the gap between the first request and the end of the last day
-- expected_requests double = requests expected in them from the earlier days
with filled as (
    select
        time_bucket(interval '10 minutes', arrived_at) as slot,
        count(*) as requests,
        min(arrived_at) as first_at
    from requests
    where trace = $trace
    group by slot
),

ends as (
    select
        min(first_at) as first_at,
        min(slot) as first_slot,
        date_trunc('day', max(slot)) + interval '1 day' as midnight
    from filled
),

-- Three hours more than the last day: requests may stop within them.
every_slot as (
    select
        first_slot,
        midnight,
        unnest(generate_series(first_slot, midnight + interval '170 minutes', interval '10 minutes')) as slot
    from ends
),

counted as (
    select slot, first_slot, midnight, slot::date as day, coalesce(requests, 0) as requests
    from every_slot
    left join filled using (slot)
),

compared as (
    select
        *,
        coalesce(
            quantile_disc(requests, 0.1) over same_weekday, quantile_disc(requests, 0.1) over same_kind
        ) as at_this_hour,
        quantile_disc(requests, 0.25) over before as at_any_hour,
        if(count(*) over shortly_before = 5, min(requests) over shortly_before, 0) as lately,
        max(slot) filter (requests > 0) over before as last_busy,
        min(slot) filter (requests > 0) over afterwards as next_busy
    from counted
    window
        same_weekday as (
            partition by isodow(slot), hour(slot)
            order by day range between unbounded preceding and interval '1 day' preceding
        ),
        same_kind as (
            partition by isodow(slot) > 5, hour(slot)
            order by day range between unbounded preceding and interval '1 day' preceding
        ),
        before as (order by slot rows between unbounded preceding and 1 preceding),
        shortly_before as (order by slot rows between 5 preceding and 1 preceding),
        afterwards as (order by slot rows between 1 following and unbounded following)
),

empty as (
    select
        slots.*,
        coalesce(
            slots.at_this_hour, if(slots.slot < slots.first_slot + interval '1 day', last_one.at_any_hour, 0)
        ) as usual,
        least(last_one.lately, usual) as expected
    from compared as slots
    inner join compared as last_one on slots.last_busy = last_one.slot
    where slots.requests = 0
),

summed as (
    select *, sum(expected) over (partition by last_busy order by slot) as expected_so_far
    from empty
),

broken_off as (
    select last_busy, min(slot) as silence_start
    from summed
    where expected_so_far >= 20 and slot <= last_busy + interval '3 hours'
    group by last_busy
),

cut_off as (
    select last_busy, min(slot) as silence_start
    from summed
    where next_busy is null and last_busy not in (select last_busy from broken_off)
    group by last_busy
    having sum(usual) filter (slot < midnight) >= 20
),

begun as (
    select *
    from (from broken_off union all from cut_off)
    qualify count(*) over (
        order by silence_start range between interval '7 days' preceding and current row
    ) <= 3
),

silent as (
    select
        silence_start,
        any_value(next_busy) as silence_end,
        count_if(slot < midnight) as slots,
        coalesce(sum(usual) filter (slot < midnight), 0)::double as expected_requests
    from summed
    inner join begun using (last_busy)
    where slot >= silence_start
    group by silence_start
),

before_the_first as (
    select
        null::timestamptz as silence_start,
        date_trunc('minute', first_at) as silence_end,
        0 as slots,
        0::double as expected_requests
    from ends
    where first_at is not null
)

select * from before_the_first
union all
select * from silent
order by silence_end
