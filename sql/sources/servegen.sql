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
-- grain: row, part
-- reads: source
-- units: tokens, seconds; a row is a member of the archive
-- format: tar
-- recognised by: chunk-#-trace.csv, chunk-#-dataset.json
-- clock: relative, seconds from the start that the mapping names
with members as (
    select *, regexp_extract("name", 'chunk-(\d+)-', 1) as client
    from source
),

lines as (
    select row, dice, client, "name", unnest(string_split(trim("content", chr(10) || chr(13)), chr(10))) as line
    from members
    where ends_with("name", '-trace.csv')
),

slots as (
    select
        row,
        dice,
        client,
        string_split("name", '/')[-2] as source_llm,
        string_split(trim(line, chr(13)), ',') as said,
        try_cast(said[1] as bigint) as slot_s,
        try_cast(said[2] as double) as rate_per_s,
        said[4] as pattern,
        greatest(try_cast(said[5] as double), 0.01) as shape
    from lines
),

sized as (
    select
        *,
        case
            when len(said) <> 6 or slot_s is null or not coalesce(rate_per_s between 0 and 1e6, false)
                then 'not a slot: ' || array_to_string(said, ',')
        end as complaint,
        floor(rate_per_s * 600 * getvariable('rate_scale') + chance(dice, slot_s)) as requests
    from slots
),

bounded as (
    select
        *,
        case
            when sum(requests) over () > 2e8
                then error(
                    'it has ' || (sum(requests) over ())::bigint || ' requests: give it a rate_scale in '
                    || 'its mapping file'
                )
            when complaint is not null then 0
            else requests::integer
        end as drawn
    from sized
),

-- The gap before each request, and one more before the end of the slot; a line that is not a slot has one row.
gaps as (
    select * exclude (said, requests), unnest(range(1, drawn + 2)) as nth_of_slot
    from bounded
    where drawn > 0 or complaint is not null
),

spaced as (
    select
        *,
        sum(
            case
                when pattern = 'Gamma' then gamma_gap(shape, dice, slot_s, nth_of_slot)
                when pattern = 'Weibull' then weibull_gap(shape, dice, slot_s, nth_of_slot)
                else weibull_gap(1, dice, slot_s, nth_of_slot)
            end
        ) over (partition by row, slot_s order by nth_of_slot) as so_far
    from gaps
),

timed as (
    select
        *,
        (
            chance(dice, 'turn' || slot_s) + so_far / max(so_far) over (partition by row, slot_s)
        ) % 1 as share_of_slot
    from spaced
),

arrivals as (
    select
        * exclude (so_far),
        row_number() over (partition by row order by slot_s, nth_of_slot)::integer as part,
        slot_s + 600 * share_of_slot as arrival_s
    from timed
    where nth_of_slot <= drawn or complaint is not null
),

windows as (
    select
        client,
        unnest(map_entries(from_json("content", '"MAP(VARCHAR, MAP(VARCHAR, VARCHAR))"'))) as entry
    from members
    where ends_with("name", '-dataset.json') and json_valid("content")
),

kinds as (
    select client, entry.key::bigint as window_s, unnest(map_entries(entry.value)) as kind
    from windows
),

pairs as (
    select
        client, window_s, kind.key as kind, unnest(string_split(trim(kind.value, '{}'), ', ')) as pair
    from kinds
    where regexp_full_match(kind.key, '(input|text|image|audio|video|output)_(tokens|count)') and kind.value <> '{}'
),

read as (
    select
        client, window_s, if(kind = 'text_tokens', 'input_tokens', kind) as kind,
        split_part(pair, ': ', 1)::bigint as tokens, split_part(pair, ': ', 2)::double as mass
    from pairs
    qualify max(if(kind = 'output_tokens', tokens, 0)) over (partition by client, window_s) > 0
),

masses as (
    select * from read
    union all
    select '' as client, window_s, kind, tokens, sum(mass) as mass
    from read
    group by window_s, kind, tokens
),

cumulated as (
    select
        *,
        (sum(mass) over (partition by client, window_s, kind order by tokens) - mass)
            / sum(mass) over (partition by client, window_s, kind) as below
    from masses
),

known as (
    select client, window_s
    from cumulated
    where kind in ('input_tokens', 'output_tokens')
    group by client, window_s
    having count(distinct kind) = 2
),

spans as (
    select client, min(window_s) as first_window_s
    from known
    group by client
),

placed as (
    select
        arrivals.*,
        if(spans.client is null, '', arrivals.client) as tokens_of,
        greatest(slot_s, coalesce(first_window_s, (select first_window_s from spans where client = ''))) as looked_up_s
    from arrivals
    left join spans on arrivals.client = spans.client
),

windowed as (
    select placed.*, known.window_s
    from placed
    asof left join known on placed.tokens_of = known.client and placed.looked_up_s >= known.window_s
),

-- Each request has a level between 0 and 1: its tokens are those of the last entry that begins below it.
levels as (
    select
        row,
        part,
        dice,
        tokens_of as client,
        window_s,
        unnest(['input_tokens', 'output_tokens']) as kind,
        chance(dice, part || kind) as level
    from windowed
    union all by name
    select
        row,
        part,
        dice,
        tokens_of as client,
        window_s,
        unnest(['image_count', 'audio_count', 'video_count']) as kind,
        chance(dice, part || kind) as level
    from windowed
    where (select count(*) from cumulated where ends_with(kind, '_count')) > 0
),

ladder as (
    select client, window_s, kind, below as level, tokens, null::bigint as row, null::integer as part, null as dice
    from cumulated
    union all by name
    select * from levels
),

climbed as (
    select
        * exclude (level, tokens),
        last_value(tokens ignore nulls) over (
            partition by client, window_s, kind order by level rows unbounded preceding
        ) as tokens
    from ladder
),

found as (
    select * from climbed
    where row is not null
),

-- Each image, audio and video has its own level.
items as (
    select
        row,
        part,
        client,
        window_s,
        replace(kind, '_count', '_tokens') as kind,
        unnest(range(1, tokens + 1)) as nth_of_kind,
        chance(dice, part || kind || '/' || nth_of_kind) as level
    from found
    where ends_with(kind, '_count') and tokens between 1 and 10000
),

item_ladder as (
    select client, window_s, kind, below as level, tokens, null::bigint as row, null::integer as part
    from cumulated
    where kind in ('image_tokens', 'audio_tokens', 'video_tokens')
    union all by name
    select * exclude (nth_of_kind) from items
),

items_climbed as (
    select
        row,
        part,
        last_value(tokens ignore nulls) over (
            partition by client, window_s, kind order by level rows unbounded preceding
        ) as tokens
    from item_ladder
),

weighed as (
    select row, part, sum(tokens)::bigint as tokens
    from items_climbed
    where row is not null
    group by row, part
),

answered as (
    select
        row,
        part,
        max(tokens) filter (where kind = 'input_tokens') as input_tokens,
        max(tokens) filter (where kind = 'output_tokens') as output_tokens,
        max(tokens) filter (where kind = 'image_count') as images,
        max(tokens) filter (where ends_with(kind, '_count')) as most_items
    from found
    group by row, part
),

canonical as (
    select
        row,
        part,
        case
            when complaint is not null then complaint
            when most_items > 10000 then 'more than 10,000 images, audios or videos in one request'
        end as complaint,
        nth(dice, part) as request_id,
        at_start(arrival_s) as arrived_at,
        source_llm,
        'client-' || client || if(tokens_of = '', '-pooled-tokens', '') as app,
        input_tokens + coalesce(weighed.tokens, 0) as input_tokens,
        output_tokens,
        images
    from windowed
    left join answered using (row, part)
    left join weighed using (row, part)
)

select * from canonical
