-- percentiles_of_day: p50, p90, p95, p99 of days with many outcomes, exact and linear between ranks like percentiles(), in constant memory.
-- grain: trace, day, policy, subject, measure
-- reads: outcomes
-- units: those of `seconds`; measure is the index in that list, from 1; rank counts from 0, below and upto are numbers of values
-- The first pass counts the values by bin, with width e/100; the second reads only the bins that contain the ranks. The
-- aggregate percentiles() is three times as fast, but keeps all values in memory and cannot spill: it is for other days.
-- Joins are inner joins, and no step is read twice, so that a query of one day reads the files of that day only: DuckDB
-- passes the day neither to the right side of an anti or semi join nor into a step that it keeps for two readers.
create or replace macro days_by_size() as table
    select trace, day, policy, count(*) > 5000000 as is_of_many
    from outcomes
    group by trace, day, policy;

create or replace macro percentile_levels() as table
    select unnest([0.50, 0.90, 0.95, 0.99]::double[]) as level;

create or replace macro percentile_bin(seconds) as
    floor(100 * ln(least(greatest(seconds, 1e-9), 1e300)))::integer;

create or replace macro percentiles_of_day(seconds, of_subject) as table
    with
    measured as not materialized (
        select
            trace, day, policy, of_subject as subject,
            unnest(seconds) as value,
            generate_subscripts(seconds, 1) as measure
        from outcomes
        inner join days_by_size() using (trace, day, policy)
        where is_of_many
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
        select
            *,
            sum(n) over (partition by trace, day, policy, subject, measure order by bin) as upto,
            upto - n as below,
            sum(n) over (partition by trace, day, policy, subject, measure) - 1 as last_rank
        from counted
    ),

    wanted as (
        select distinct trace, day, policy, subject, measure, bin, below, last_rank
        from bins
        cross join percentile_levels()
        where below <= ceil(last_rank * level) and upto > floor(last_rank * level)
    ),

    valued as (
        select trace, day, policy, subject, measure, bin, below, last_rank, value, count(*) as n
        from seen
        inner join wanted using (trace, day, policy, subject, measure, bin)
        group by trace, day, policy, subject, measure, bin, below, last_rank, value
    ),

    ranked as (
        select *, below + sum(n) over (partition by trace, day, policy, subject, measure, bin order by value) as upto
        from valued
    ),

    picked as (
        select
            trace, day, policy, subject, measure, level,
            min(value) filter (where upto > floor(last_rank * level)) as low,
            min(value) filter (where upto > ceil(last_rank * level)) as high,
            any_value(last_rank * level - floor(last_rank * level)) as part
        from ranked
        cross join percentile_levels()
        group by trace, day, policy, subject, measure, level
    )

    select
        trace, day, policy, subject, measure,
        finite_or_null(list(low + (high - low) * part order by level)) as percentiles
    from picked
    group by trace, day, policy, subject, measure;
