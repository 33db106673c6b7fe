-- busiest_endpoint: the endpoint with the most tokens of the day.
-- grain: one row
-- reads: requests
-- units: none
select llm, region
from requests
where trace = $trace and day = $day and (llm = $llm or $llm is null) and (region = $region or $region is null)
group by llm, region
order by sum(input_tokens + output_tokens) desc, llm, region
limit 1
