-- What do our studies find where a paper tells a figure, by its way to count instance-hours and by their integral?
-- grain: paper, study, variant, policy, against, metric, tier, llm
-- reads: studies, paper_values
-- units: as in studies; where against is said, the share by which policy changes what against has
-- paper_value = what the paper says
-- fleetcast_value = of the same metric; null where the study has not been run
-- fleetcast_integral = of instance_hours, where the metric is quarter_instance_hours
-- off = ours less the paper's, of what is a share; else ours in the paper's, less 1
with found as (
    select study, variant, policy, metric, tier, llm, value from studies
    union all
    select study, variant, policy, 'missed_share', tier, llm, 1 - value
    from studies
    where metric = 'attainment_share'
),

joined as (
    select
        told.paper, told.study, told.variant, told.policy, told.against, told.metric, told.tier, told.llm,
        told.section,
        told.value as paper_value,
        if(told.against is null, ours.value, ours.value / nullif(base.value, 0) - 1) as fleetcast_value,
        if(told.against is null, whole.value, whole.value / nullif(whole_base.value, 0) - 1) as fleetcast_integral
    from paper_values as told
    left join found as ours
        on (ours.study, ours.variant, ours.policy, ours.metric, ours.tier, ours.llm)
        = (told.study, told.variant, told.policy, told.metric, told.tier, told.llm)
    left join found as base
        on (base.study, base.variant, base.policy, base.metric, base.tier, base.llm)
        = (told.study, told.variant, told.against, told.metric, told.tier, told.llm)
    left join found as whole
        on told.metric = 'quarter_instance_hours'
        and (whole.study, whole.variant, whole.policy, whole.metric, whole.llm)
        = (told.study, told.variant, told.policy, 'instance_hours', told.llm)
    left join found as whole_base
        on told.metric = 'quarter_instance_hours'
        and (whole_base.study, whole_base.variant, whole_base.policy, whole_base.metric, whole_base.llm)
        = (told.study, told.variant, told.against, 'instance_hours', told.llm)
)

select
    *,
    if(against is not null or metric like '%\_share' escape '\', fleetcast_value - paper_value, fleetcast_value / paper_value - 1) as off
from joined
order by paper, study, section, variant, metric, tier, llm, policy, against nulls first
