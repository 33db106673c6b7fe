-- What llms answered to queries and how well: a row an answer. They become no requests but the table answers.
-- grain: row
-- reads: source
-- units: tokens; score from 0 to 1; hardness and what a judge says in any unit that rises
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
