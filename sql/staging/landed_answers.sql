-- The answers of a landed file.
-- grain: query_id, llm
-- reads: staged
-- units: tokens; score from 0 to 1
select
    getvariable('file') as file,
    query_id,
    llm,
    score,
    output_tokens,
    input_tokens,
    hardness,
    judges
from staged
where reason is null
order by query_id, llm
