-- ttft_histogram: number of requests by time to first token, in fifty steps per factor of ten.
-- grain: trace, day, policy, tier, ttft_s
-- reads: outcomes
-- units: ttft_s seconds from arrival to the first token, the upper edge of its bin
-- requests = number of requests in this bin
-- cumulated_share = share of the requests of this row and those before it: of the tier's, in this bin and the faster ones; the rest up to 1 was never served
select trace, day, policy, tier, edge_s as ttft_s, requests, cumulated_share
from seconds_histogram(ttft_s, true)
