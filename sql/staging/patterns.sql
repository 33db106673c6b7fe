-- Infers the tier of apps without one, once per trace, from their first arrivals: bursts with silence between them,
-- or office hours. The first 71 hours after an app's first request can show bursts, the first 167 both: an hour less
-- than three days and a week, so that files of whole days suffice. The rules run as soon as the trace has a later
-- request, from 1,000 requests on. The verdict stays in the lake (tier_verdicts), so it does not depend on how the
-- trace was split into files. Bursts: four fifths of the requests are in a tenth of all five minutes, as of batch jobs
-- (BurstGPT's API log), not of people. Office hours: an hour of a weekday has at least twice the requests of one at
-- the weekend, as of people (SageServe 3); an hour without requests counts. A row of this file that landed earlier
-- without a verdict does not change.
-- reads: staged, requests, ingests, tier_verdicts
create temp table new_verdicts as (
with unjudged as (
    select distinct app
    from staged
    where
        tier_source = 'dealt' and reason is null
        and app not in (select app from tier_verdicts where trace = getvariable('trace'))
),

arrivals as (
    select app, arrived_at
    from staged
    where tier_source = 'dealt' and reason is null and app in (from unjudged)
    union all
    select app, arrived_at
    from requests
    where
        trace = getvariable('trace') and source <> getvariable('file')
        and tier_source = 'dealt' and app in (from unjudged)
),

ends as (
    select max(arrived_at) as last_at
    from staged
    where reason is null
    union all
    select max(last_at) as last_at
    from ingests
    where trace = getvariable('trace')
),

begun as (
    select app, min(arrived_at) as first_at, unnest([71, 167]) as hours
    from arrivals
    group by app
),

looks as (
    select
        *,
        len(list_filter(range(0, hours), lambda h: isodow(first_at + to_hours(h::integer)) <= 5)) as weekday_hours
    from begun
    where first_at + to_hours(hours) <= (select max(last_at) from ends)
),

slots as (
    select
        looks.*,
        date_diff('second', first_at, arrived_at) // 300 as slot,
        count(*) as requests,
        count_if(isodow(arrived_at) <= 5) as on_weekdays
    from looks
    inner join arrivals on looks.app = arrivals.app and arrived_at < first_at + to_hours(hours)
    group by all
),

ranked as (
    select *, row_number() over (partition by app, hours order by requests desc) as rank
    from slots
),

measured as (
    select
        app, first_at, hours,
        sum(requests)::bigint as requests,
        sum(requests) filter (where rank <= 12 * hours / 10) / sum(requests) as busiest_share,
        sum(on_weekdays) / weekday_hours as per_weekday_hour,
        sum(requests - on_weekdays) / (hours - weekday_hours) as per_weekend_hour
    from ranked
    group by app, first_at, hours, weekday_hours
),

judged as (
    select
        *,
        case
            when requests < 1000 then null
            when busiest_share >= 0.8
                then {'tier': 'niw', 'rule': 'bursts', 'confidence': 0.5::double}
            when hours = 167 and per_weekday_hour >= 2 * per_weekend_hour
                then {'tier': 'iw_fast', 'rule': 'office_hours', 'confidence': 0.4::double}
        end as verdict
    from measured
)

select app, verdict.tier as tier, verdict.rule as tier_rule, verdict.confidence as confidence, first_at, hours, requests
from judged
where verdict is not null or hours = 167
qualify row_number() over (partition by app order by hours) = 1
);

create temp table verdicts as (
select * from new_verdicts
union all by name
select * exclude (trace) from tier_verdicts
where trace = getvariable('trace')
);

update staged
set
    tier = verdicts.tier,
    tier_source = verdicts.tier_rule,
    tier_confidence = verdicts.confidence,
    deadline_s = getvariable('deadlines_s')[list_position(getvariable('tiers'), verdicts.tier)]
from verdicts
where
    staged.app = verdicts.app and staged.tier_source = 'dealt' and list_contains(getvariable('tiers'), verdicts.tier)
    and staged.request_id not in (
        select request_id from requests
        where trace = getvariable('trace') and source = getvariable('file') and tier_source = 'dealt'
    );
