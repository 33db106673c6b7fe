-- Answers of llms to queries with their scores, one row per answer. They go to the table answers, not to requests.
-- grain: row
-- reads: source
-- units: tokens; score from 0 to 1; hardness and judges in any unit, larger is harder or better
-- format: csv
-- recognised by: query_id, llm, score, output_tokens
-- may have: input_tokens, hardness, judge_*
select
    row,
    complaint,
    query_id::varchar            as query_id,
    llm::varchar                 as llm,
    try_cast(score as double)    as score,
    whole(output_tokens)         as output_tokens,
    input_tokens::varchar        as input_tokens,
    hardness::varchar            as hardness,
    "judge_*"                    as judges
from source
