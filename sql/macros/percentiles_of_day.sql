-- percentiles_of_day: p50, p90, p95, p99 of a day of many outcomes, exact and linear between ranks like percentiles(), in memory that does not grow with them.
-- grain: trace, day, policy, whom, measure
-- reads: outcomes
-- units: those of `seconds`; a measure is its place in that list, from 1; rank counts from 0, below and upto are numbers of values
-- One walk counts the values by bin, a hundredth of e wide; one more looks at the bins in which the ranks lie. The
-- aggregate percentiles() is three times as fast, but holds all values and cannot spill: it is for other days.
create or replace macro days_of_many() as table
    select trace, day, policy
    from outcomes
    group by trace, day, policy
    having count(*) > 5000000;

create or replace macro percentile_bin(seconds) as
    floor(100 * ln(greatest(seconds, 1e-9)))::integer;

create or replace macro percentiles_of_day(seconds, of_whom) as table
    with
    told as not materialized (
        select
            trace, day, policy, of_whom as whom,
            unnest(seconds) as value,
            generate_subscripts(seconds, 1) as measure
        from outcomes
        semi join days_of_many() using (trace, day, policy)
    ),

    seen as not materialized (
        select *, percentile_bin(value) as bin
        from told
        where value is not null
    ),

    counted as (
        select trace, day, policy, whom, measure, bin, count(*) as n
        from seen
        group by trace, day, policy, whom, measure, bin
    ),

    bins as (
        select *, sum(n) over (partition by trace, day, policy, whom, measure order by bin) as upto, upto - n as below
        from counted
    ),

    asked as (
        select trace, day, policy, whom, measure, level, (max(upto) - 1) * level as rank
        from bins
        cross join (select unnest([0.50, 0.90, 0.95, 0.99]::double[]) as level)
        group by trace, day, policy, whom, measure, level
    ),

    wanted as (
        select distinct trace, day, policy, whom, measure, bin, below
        from bins
        inner join asked using (trace, day, policy, whom, measure)
        where below <= ceil(rank) and upto > floor(rank)
    ),

    valued as (
        select trace, day, policy, whom, measure, bin, below, value, count(*) as n
        from seen
        inner join wanted using (trace, day, policy, whom, measure, bin)
        group by trace, day, policy, whom, measure, bin, below, value
    ),

    ranked as (
        select *, below + sum(n) over (partition by trace, day, policy, whom, measure, bin order by value) as upto
        from valued
    ),

    picked as (
        select
            trace, day, policy, whom, measure, level,
            min(value) filter (where upto > floor(rank)) as low,
            min(value) filter (where upto > ceil(rank)) as high,
            rank - floor(rank) as part
        from ranked
        inner join asked using (trace, day, policy, whom, measure)
        group by trace, day, policy, whom, measure, level, rank
    )

    select
        trace, day, policy, whom, measure,
        list(low + (high - low) * part order by level) as percentiles
    from picked
    group by trace, day, policy, whom, measure;
