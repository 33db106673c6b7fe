-- largest_hour: the largest number of instances of the corrected plan at an endpoint.
-- grain: one row
-- reads: plans
-- units: instances
select max(instances) as instances
from (
    select sum(instances) as instances
    from plans
    where trace = $trace and day = $day and policy = 'corrected' and llm = $llm and served_region = $region
    group by hour_start
)
