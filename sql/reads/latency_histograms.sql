-- latency_histograms: samples of the engines' latency histograms by hour of the day.
-- grain: llm, region, measure, hour, at_most
-- reads: engine_histograms
-- units: hour of the day, UTC; at_most in seconds; samples
select llm, served_region as region, measure, hour(hour_start) as hour, at_most, sum(samples) as samples
from engine_histograms
where trace = $trace and list_contains($measures, measure) and hour_start >= $begin and hour_start < $end
group by all
