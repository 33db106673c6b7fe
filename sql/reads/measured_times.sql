-- measured_times: arrival and measured latencies of each request of a day that has them.
-- grain: request
-- reads: requests
-- units: seconds; arrival_s since the begin of the day; output_tokens in tokens
select
    llm, region, epoch(arrived_at - $begin::timestamptz) as arrival_s, output_tokens,
    source_ttft_s as ttft_s, source_e2e_s as e2e_s
from requests
where trace = $trace and day = $day and source_ttft_s is not null
