-- percentiles_of_day: p50, p90, p95, p99 of days with many outcomes, exact and linear between ranks like percentiles(), in constant memory.
-- grain: trace, day, policy, subject, measure
-- reads: outcomes
-- units: those of `seconds`; measure is the index in that list, from 1; rank counts from 0, below and upto are numbers of values
-- The first pass counts the values by bin, with width e/100; the second reads only the bins that contain the ranks. The
-- aggregate percentiles() is three times as fast, but keeps all values in memory and cannot spill: it is for other days.
create or replace macro days_of_many() as table
    select trace, day, policy
    from outcomes
    group by trace, day, policy
    having count(*) > 5000000;

create or replace macro percentile_bin(seconds) as
    floor(100 * ln(greatest(seconds, 1e-9)))::integer;

create or replace macro percentiles_of_day(seconds, of_subject) as table
    with
    measured as not materialized (
        select
            trace, day, policy, of_subject as subject,
            unnest(seconds) as value,
            generate_subscripts(seconds, 1) as measure
        from outcomes
        semi join days_of_many() using (trace, day, policy)
    ),

    seen as not materialized (
        select *, percentile_bin(value) as bin
        from measured
        where value is not null
    ),

    counted as (
        select trace, day, policy, subject, measure, bin, count(*) as n
        from seen
        group by trace, day, policy, subject, measure, bin
    ),

    bins as (
        select *, sum(n) over (partition by trace, day, policy, subject, measure order by bin) as upto, upto - n as below
        from counted
    ),

    wanted_ranks as (
        select trace, day, policy, subject, measure, level, (max(upto) - 1) * level as rank
        from bins
        cross join (select unnest([0.50, 0.90, 0.95, 0.99]::double[]) as level)
        group by trace, day, policy, subject, measure, level
    ),

    wanted as (
        select distinct trace, day, policy, subject, measure, bin, below
        from bins
        inner join wanted_ranks using (trace, day, policy, subject, measure)
        where below <= ceil(rank) and upto > floor(rank)
    ),

    valued as (
        select trace, day, policy, subject, measure, bin, below, value, count(*) as n
        from seen
        inner join wanted using (trace, day, policy, subject, measure, bin)
        group by trace, day, policy, subject, measure, bin, below, value
    ),

    ranked as (
        select *, below + sum(n) over (partition by trace, day, policy, subject, measure, bin order by value) as upto
        from valued
    ),

    picked as (
        select
            trace, day, policy, subject, measure, level,
            min(value) filter (where upto > floor(rank)) as low,
            min(value) filter (where upto > ceil(rank)) as high,
            rank - floor(rank) as part
        from ranked
        inner join wanted_ranks using (trace, day, policy, subject, measure)
        group by trace, day, policy, subject, measure, level, rank
    )

    select
        trace, day, policy, subject, measure,
        list(low + (high - low) * part order by level) as percentiles
    from picked
    group by trace, day, policy, subject, measure;
