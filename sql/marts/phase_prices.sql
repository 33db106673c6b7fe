-- phase_prices: USD per million tokens by phase and deployment, and the cheapest deployment of each phase.
-- grain: trace, day, llm, gpu, gpus_per_instance
-- reads: gpu_prices
-- units: US dollars, shares 0 to 1; made by fleetcast gpus
-- usd_per_million_tokens = cost per million tokens: both phases, in the mix of the mean request
-- is_cheapest_prefill, is_cheapest_decode, is_cheapest_together = whether no other deployment is cheaper
select
    trace,
    day,
    llm,
    gpu,
    gpus_per_instance,
    is_best_of_gpu,
    usd_per_gpu_hour,
    usd_per_million_input_tokens,
    usd_per_million_output_tokens,
    (mean_input_tokens * usd_per_million_input_tokens + mean_output_tokens * usd_per_million_output_tokens)
    / (mean_input_tokens + mean_output_tokens)                      as usd_per_million_tokens,
    usd_per_million_input_tokens
    = min(usd_per_million_input_tokens) over (partition by trace, day, llm)  as is_cheapest_prefill,
    usd_per_million_output_tokens
    = min(usd_per_million_output_tokens) over (partition by trace, day, llm) as is_cheapest_decode,
    usd_per_million_tokens
    = min(usd_per_million_tokens) over (partition by trace, day, llm)        as is_cheapest_together,
    prefill_turns_at_usd,
    decode_turns_at_usd,
    disaggregation_saving_bound_share,
    latency,
    median_error_share
from gpu_prices
