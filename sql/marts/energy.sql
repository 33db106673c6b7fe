-- energy: joules of the GPU boards that served each llm, and their USD, where the power of the boards was measured.
-- grain: trace, day, policy, llm
-- reads: fleet_hours, outcomes
-- units: *_gpu_hours GPU-hours, usd US dollars, joules J of the whole day, joules_per_token J per token
-- serving_gpu_hours = GPU-hours of serving or being ready to serve, without booting and draining
-- measured_gpu_hours = part of them on boards whose power under load was measured with this llm (latency.toml board_w)
-- joules = upper bound: as if serving boards were always under load; null where some were not measured
-- tokens = number of tokens: prompt and output of the requests that this llm finished <- outcomes.input_tokens, outcomes.output_tokens
-- joules_per_token = per prompt or output token
with fleets as (
    select
        trace, day, policy, llm,
        sum(gpu_hours(serving_s, gpus_per_instance)) as serving_gpu_hours,
        coalesce(sum(gpu_hours(serving_s, gpus_per_instance)) filter (where board_w is not null), 0) as measured_gpu_hours,
        sum(usd(gpu_hours(paid_s(serving_s, booting_s, draining_s), gpus_per_instance), usd_per_gpu_hour)) as usd,
        sum(serving_s * gpus_per_instance * board_w) as known_joules,
        bool_or(board_w is null and serving_s > 0) as is_partly_unknown
    from fleet_hours
    group by trace, day, policy, llm
),

served as (
    select trace, day, policy, served_llm as llm, sum(input_tokens + output_tokens)::bigint as tokens
    from outcomes
    where e2e_s is not null
    group by trace, day, policy, served_llm
),

joined as (
    select
        * exclude (known_joules, is_partly_unknown),
        if(is_partly_unknown, null, known_joules) as joules
    from fleets
    left join served using (trace, day, policy, llm)
)

select
    *,
    joules / nullif(tokens, 0) as joules_per_token
from joined
