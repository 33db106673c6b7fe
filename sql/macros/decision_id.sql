-- decision_id: what a plan decides on like instances in a region for an hour, by one name that plan rows, exports, the scaler and grades share.
-- units: twelve hexadecimal digits; made_at is when the plan was made, null where the policy and the day say it
create or replace macro decision_id(trace, policy, made_at, llm, role, region, gpu, gpus_per_instance, hour_start) as
    left(
        md5(
            concat_ws(
                '|', trace, policy, coalesce(epoch_us(made_at)::varchar, ''), llm, role, region, gpu, gpus_per_instance, epoch_us(hour_start)
            )
        ),
        12
    );
