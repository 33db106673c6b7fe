-- tpot_histogram: number of requests by time per output token, in fifty steps per factor of ten, for tiers with a TPOT target.
-- grain: trace, day, policy, tier, tpot_s
-- reads: outcomes
-- units: tpot_s seconds per output token after the first, the upper edge of its bin
-- requests = number of requests in this bin; the first bin includes requests with a single token, which meet any target
-- cumulated_share = share of the requests of this row and those before it: of the tier's, in this bin and the faster ones; the rest up to 1 was never served
select trace, day, policy, tier, edge_s as tpot_s, requests, cumulated_share
from seconds_histogram(if(e2e_s is null, null, coalesce(tpot_s, 0)), tpot_slo_s is not null)
