-- ServeGen client rates and token distributions (alibaba/ServeGen, data/CATEGORY/NAME packed as tar) as requests.
-- A client has a rate and a pattern of gaps for each slot of 600 s and token distributions for each window of 6 h.
-- A slot has rate x 600 x rate_scale requests, rounded at random; the gaps between them come from its Gamma or
-- Weibull shape, stretched to fill the slot and rotated at random, so that the counts are the measured ones and the
-- bursts inside the slot are kept (as in ServeGen section 3, where pooled arrivals hide the bursts of clients), but
-- no request is always at the slot's edge. Input and output tokens are sampled independently from the last window with
-- data. A client without a token file uses the distributions of all other clients; its app has the name
-- client-5-pooled-tokens. A multimodal client has text_tokens instead of
-- input_tokens, and the number of images, audios and videos of a request, each with its own tokens: the input is the sum
-- of all. A window in which a client sent nothing has {} or only an output of 0.
-- assets/traces/servegen_requests.py samples all this, seeded by the name of the member, into the view `sampled`.
-- grain: row, part
-- reads: source, sampled
-- units: tokens, seconds; a row is a member of the archive
-- format: tar
-- recognised by: chunk-#-trace.csv, chunk-#-dataset.json
-- clock: relative, seconds from the start that the mapping names
with members as (  -- the llm is mapped once per member, not once per request
    select row, dice, called(string_split(name, '/')[-2], null::ubigint) as llm
    from source
)

select
    sampled.row,
    part,
    case
        when sampled.complaint is not null then sampled.complaint
        when most_items > 10000 then 'more than 10,000 images, audios or videos in one request'
    end                                                         as complaint,
    nth(dice, part)                                             as request_id,
    at_start(arrival_s)                                         as arrived_at,
    source_llm,
    members.llm,
    'client-' || client || if(is_pooled, '-pooled-tokens', '')  as app,
    input_tokens,
    output_tokens,
    nullif(images, -1)                                          as images
from sampled
inner join members on sampled.row = members.row
