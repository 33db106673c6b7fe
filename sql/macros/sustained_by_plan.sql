-- sustained_by_plan: what all instances of a row of a plan sustain within the SLO.
-- units: input tokens/s
-- Without a value (null in plans of older releases), small pools count like large ones.
create or replace macro sustained_by_plan(sustained_tokens_per_s, instances, capacity_tokens_per_s) as
    coalesce(sustained_tokens_per_s, instances * capacity_tokens_per_s);
