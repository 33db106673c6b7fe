-- decision_id: id of a plan's decision on the like instances of a region for an hour, the same in plan rows, exports, the scaler and grades.
-- units: twelve hexadecimal digits; made_at is the time of planning, null where policy and day identify the plan
create or replace macro decision_id(trace, policy, made_at, llm, role, region, gpu, gpus_per_instance, hour_start) as
    left(
        md5(
            concat_ws(
                '|', trace, policy, coalesce(epoch_us(made_at)::varchar, ''), llm, role, region, gpu, gpus_per_instance, epoch_us(hour_start)
            )
        ),
        12
    );
