-- What do our studies find for the published values, with the paper's count of instance-hours and with the time integral?
-- grain: paper, study, variant, policy, against, metric, tier, llm
-- reads: studies, paper_values
-- units: as in studies; with `against`, the relative change from against to policy
-- paper_value = the published value
-- fleetcast_value = fleetcast's value of the same metric; null if the study has not been run
-- fleetcast_integral = fleetcast's instance_hours, if the metric is quarter_instance_hours
-- off = difference of fleetcast's value and the published one for shares; else their ratio less 1
with found as (
    select study, variant, policy, metric, tier, llm, value from studies
    union all
    select study, variant, policy, 'missed_share', tier, llm, 1 - value
    from studies
    where metric = 'attainment_share'
),

joined as (
    select
        published.paper, published.study, published.variant, published.policy, published.against, published.metric, published.tier, published.llm,
        published.section,
        published.value as paper_value,
        if(published.against is null, own.value, own.value / nullif(base.value, 0) - 1) as fleetcast_value,
        if(published.against is null, whole.value, whole.value / nullif(whole_base.value, 0) - 1) as fleetcast_integral
    from paper_values as published
    left join found as own
        on (own.study, own.variant, own.policy, own.metric, own.tier, own.llm)
        = (published.study, published.variant, published.policy, published.metric, published.tier, published.llm)
    left join found as base
        on (base.study, base.variant, base.policy, base.metric, base.tier, base.llm)
        = (published.study, published.variant, published.against, published.metric, published.tier, published.llm)
    left join found as whole
        on published.metric = 'quarter_instance_hours'
        and (whole.study, whole.variant, whole.policy, whole.metric, whole.llm)
        = (published.study, published.variant, published.policy, 'instance_hours', published.llm)
    left join found as whole_base
        on published.metric = 'quarter_instance_hours'
        and (whole_base.study, whole_base.variant, whole_base.policy, whole_base.metric, whole_base.llm)
        = (published.study, published.variant, published.against, 'instance_hours', published.llm)
)

select
    *,
    if(against is not null or metric like '%\_share' escape '\', fleetcast_value - paper_value, fleetcast_value / paper_value - 1) as off
from joined
order by paper, study, section, variant, metric, tier, llm, policy, against nulls first
