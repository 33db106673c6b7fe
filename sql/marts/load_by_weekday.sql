-- load_by_weekday: mean load of a tier by day of the week: are weekends quieter? (SageServe section 3).
-- grain: trace, tier, weekday
-- reads: demand
-- units: requests and tokens per day, means over the recorded days of that weekday
-- trace = name of the trace <- demand.trace
-- tier = urgency class <- demand.tier
-- weekday = 1 is Monday, 7 Sunday; UTC <- demand.day
-- days = number of days: recorded ones of that weekday
-- requests_per_day = requests on a mean day <- demand.requests
-- tokens_per_day = input and output tokens on a mean day <- demand.input_tokens, demand.output_tokens
-- of_mean_working_day = requests over those of a mean Monday to Friday; null where none was recorded
with by_day as (
    select
        trace, tier, day,
        sum(requests) as requests,
        sum(input_tokens + output_tokens) as tokens
    from demand
    group by trace, tier, day
),

by_weekday as (
    select
        trace, tier,
        isodow(day) as weekday,
        count(*) as days,
        avg(requests) as requests_per_day,
        avg(tokens) as tokens_per_day
    from by_day
    group by trace, tier, isodow(day)
)

select
    *,
    requests_per_day / (
        sum(days * requests_per_day) filter (where weekday <= 5) over (partition by trace, tier)
        / sum(days) filter (where weekday <= 5) over (partition by trace, tier)
    ) as of_mean_working_day
from by_weekday
