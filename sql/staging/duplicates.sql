-- Of requests with the same id the first one stays; the trace's other files are older than this file. If they
-- came at another instant, they are not the same: ids that begin again in each file.
-- A format without ids makes them from file and row, so the same requests in two files (one packed, or two
-- exports that overlap) are matched by instant, tokens and the source's llm: if, in the time that both files
-- cover, at least half of the rows are in the other file too, they are the same requests, each as often as there.
-- A position is the row and the part of it in one number: 2^32 parts to a row.
-- reads: staged, requests
update staged
set reason = if(
    other.arrived_at = staged.arrived_at,
    'its request_id is already in the trace, from ',
    'another request has its request_id, from '
) || other.source
from requests as other
where
    other.trace = getvariable('trace')
    and other.source <> getvariable('file')
    and other.request_id = staged.request_id
    and staged.reason is null;

update staged
set reason = 'its request_id is used by an earlier row'
from (
    select
        request_id,
        min((row << 32) + part) as first_place
    from staged
    where reason is null
    group by request_id
    having count(*) > 1
) as repeated
where
    staged.request_id = repeated.request_id
    and (staged.row << 32) + staged.part > repeated.first_place
    and staged.reason is null;

update staged
set reason = 'the same request is already in the trace, from ' || twins.source
from (
    with others as (
        select
            source, arrived_at, input_tokens, output_tokens, coalesce(source_llm, '') as source_llm,
            row_number() over (partition by source, arrived_at, input_tokens, output_tokens, source_llm) as nth
        from requests
        where
            trace = getvariable('trace')
            and source <> getvariable('file')
            and not getvariable('has_given_ids')
    ),

    spans as (
        select source, min(arrived_at) as first_at, max(arrived_at) as last_at
        from others
        group by source
    ),

    mine as (
        select
            row, part, arrived_at, input_tokens, output_tokens, coalesce(source_llm, '') as source_llm,
            row_number() over (
                partition by arrived_at, input_tokens, output_tokens, source_llm order by row, part
            ) as nth
        from staged
        where reason is null and (select count(*) from spans) > 0
    ),

    covered as (
        select spans.source, count(*) as rows
        from mine
        inner join spans on mine.arrived_at between spans.first_at and spans.last_at
        group by spans.source
    ),

    alike as (
        select others.source, row, part, count(*) over (partition by others.source) as rows
        from mine
        inner join others using (arrived_at, input_tokens, output_tokens, source_llm, nth)
    )

    select row, part, min(alike.source) as source
    from alike
    inner join covered on alike.source = covered.source
    where alike.rows >= 0.5 * covered.rows
    group by row, part
) as twins
where staged.row = twins.row and staged.part = twins.part and staged.reason is null;
