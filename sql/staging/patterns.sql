-- Apps whose tier would be dealt out, judged by how they arrive: bursts with silence between, or office hours.
-- An app is judged from 1,000 requests over 3 days on. Bursts: four fifths of its requests come in a tenth of
-- all its minutes, which batch jobs do (BurstGPT's API log) and people do not. Office hours: a weekday brings at
-- least twice what a day of the weekend does, which people do (SageServe 3).
-- reads: staged
update staged
set
    tier = judged.tier,
    tier_source = judged.rule,
    tier_confidence = judged.confidence,
    deadline_s = getvariable('deadlines_s')[list_position(getvariable('tiers'), judged.tier)]
from (
    with dealt as (
        select app, date_trunc('minute', arrived_at) as minute, count(*) as requests
        from staged
        where tier_source = 'dealt' and reason is null
        group by app, date_trunc('minute', arrived_at)
    ),

    ranked as (
        select
            *,
            row_number() over (partition by app order by requests desc) as rank,
            date_diff('minute', min(minute) over (partition by app), max(minute) over (partition by app)) + 1
                as minutes
        from dealt
    ),

    measured as (
        select
            app,
            sum(requests) filter (where rank <= minutes / 10) / sum(requests) as busiest_share,
            sum(requests) filter (where isodow(minute) <= 5)
                / nullif(count(distinct minute::date) filter (where isodow(minute) <= 5), 0) as per_weekday,
            sum(requests) filter (where isodow(minute) > 5)
                / nullif(count(distinct minute::date) filter (where isodow(minute) > 5), 0) as per_weekend_day
        from ranked
        group by app
        having sum(requests) >= 1000 and max(minutes) >= 3 * 1440
    )

    select app, 'niw' as tier, 'bursts' as rule, 0.5 as confidence
    from measured
    where busiest_share >= 0.8
    union all
    select app, 'iw_fast' as tier, 'office_hours' as rule, 0.4 as confidence
    from measured
    where busiest_share < 0.8 and per_weekday >= 2 * per_weekend_day
) as judged
where staged.app = judged.app and staged.tier_source = 'dealt'
    and list_contains(getvariable('tiers'), judged.tier);
