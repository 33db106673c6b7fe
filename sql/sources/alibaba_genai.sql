-- The request trace of Alibaba's GenAI 2026 data set (alibaba/clusterdata, cluster-trace-v2026-GenAI, lora_request_trace.csv).
-- These are requests for images by diffusion: no token was counted. The input is the prompt at four characters a token, and the output is
-- the denoising steps of all its images, which is what the answer costs. So counts are comparable in the file, not with those of an llm.
-- Written from its README; not tested on a file of it.
-- grain: row
-- reads: source
-- units: four characters, denoising steps; exec_time_seconds in seconds
-- format: csv
-- recognised by: gmt_create, predict_type, predict_status, exec_time_seconds, prompt_length, num_images_per_prompt, num_inference_steps
-- may have: negative_prompt_length, checkpoint_model_version_id
-- clock: as given, shifted by the publisher; UTC where the text has no zone
select
    row,
    case
        when complaint is not null then complaint
        when "predict_status" is distinct from 'SUCCEED' then 'failure: predict_status ' || coalesce("predict_status", 'missing')
    end                                   as complaint,
    dice                                  as request_id,
    instant("gmt_create")                 as arrived_at,
    "checkpoint_model_version_id"         as source_llm,
    "predict_type"                        as app,
    try_cast(greatest(1, ceil(
        (coalesce(try_cast("prompt_length" as double), 0) + coalesce(try_cast("negative_prompt_length" as double), 0)) / 4
    )) as bigint)                         as input_tokens,
    try_cast(whole("num_inference_steps")::hugeint * whole("num_images_per_prompt") as bigint) as output_tokens,
    try_cast("exec_time_seconds" as double) as source_e2e_s
from source
