-- quality: data quality findings of a landed trace, one row per finding.
-- grain: file, aspect, detail
-- reads: requests, quarantine, ingests, silences, prefix_reuse, metric_findings
-- units: rows; share of the file's rows; for findings on kept rows, of the kept rows
-- file varchar = the landed file; all if the finding is about the whole trace
-- aspect varchar = the aspect that was checked
-- rows bigint = number of rows; null where the finding is not about rows
-- share double = share of the file's rows; for a finding about kept rows, of those; else of what detail names
-- detail varchar = the finding
-- verdict varchar = result of the check or comparison: ok, note (for information), warn (please check)
with landed as (
    select file, format, rows_in, rows_kept, rows_out_of_order, largest_step_back_s, clock
    from ingests
    where trace = $trace
),

kept as (
    select
        source as file, arrived_at, app, llm, source_llm, input_tokens, output_tokens, session_id,
        tier_source, tier_confidence, cached_tokens, prefix_hashes, source_ttft_s, source_e2e_s
    from requests
    where trace = $trace and source in (select file from landed)
),

-- Requests sampled from metrics have no duplicates, limits and time grids of their own.
logged as (
    select * from kept
    where file in (select file from landed where format <> 'prometheus')
),

refusals as (
    select file, reason, count(*) as rows
    from quarantine
    where trace = $trace
    group by file, reason
),

conserved as (
    select file, 'kept' as aspect, rows_kept as rows, rows_kept / rows_in as share,
        if(format = 'answers', 'answers', 'requests') as detail,
        if(rows_kept = 0, 'warn', 'ok') as verdict
    from landed
),

quarantined as (
    select
        file,
        case
            when starts_with(reason, 'failure:') then 'failures'
            when starts_with(reason, 'no request:') then 'no requests'
            when starts_with(reason, 'its request_id') or starts_with(reason, 'its query_id')
                or starts_with(reason, 'the same request') then 'duplicates'
            else 'quarantined'
        end as aspect,
        rows,
        rows / rows_in as share,
        regexp_replace(reason, '^(failure|no request): ', '') as detail,
        if(aspect = 'quarantined' and share > 0.01, 'warn', 'note') as verdict
    from refusals
    inner join landed using (file)
),

clocks as (
    select file, 'clock' as aspect, null as rows, null as share, clock as detail, 'ok' as verdict
    from landed
    where clock is not null
),

-- A clock set back an hour shows as a step of less: the rows before and after it have a gap.
stepped as (
    select
        file, rows_out_of_order as rows, rows_out_of_order / rows_kept as share, largest_step_back_s,
        if(largest_step_back_s >= 1800 and (rows <= 2 or share < 0.01), 'warn', 'note') as verdict
    from landed
    where rows_out_of_order > 0
),

steps as (
    select file, 'clock steps' as aspect, rows, share,
        'rows earlier than the row before them, by up to ' || round(largest_step_back_s, 3) || ' s'
        || if(
            verdict = 'warn',
            '. If a local clock was set back, name its zone in the mapping file: clock = "Europe/Berlin"', ''
        ) as detail,
        verdict
    from stepped
),

alike as (
    select file, count(*) as requests
    from logged
    group by file, arrived_at, input_tokens, output_tokens, source_llm, session_id
    having count(*) > 1
),

repeated as (
    select file, 'duplicates' as aspect, sum(requests - 1)::bigint as rows, rows / any_value(rows_kept) as share,
        'kept, but equal in instant, tokens, llm and session' as detail,
        if(share > 0.01, 'warn', 'note') as verdict
    from alike
    inner join landed using (file)
    group by file
),

recoded as (
    select file, 'not UTF-8' as aspect, count(*) as rows, rows / any_value(rows_kept) as share,
        'have characters that are no UTF-8, kept as ' || chr(65533) || '. Save the file as UTF-8 and land it again'
        as detail, 'warn' as verdict
    from kept
    inner join landed using (file)
    where contains(app, chr(65533)) or contains(source_llm, chr(65533)) or contains(session_id, chr(65533))
    group by file
),

-- A limit shows as a spike at the largest count, with almost no requests in the two per cent below it.
limits as (
    select file, max(input_tokens) as most_in, max(output_tokens) as most_out
    from logged
    group by file
),

spikes as (
    select
        file, any_value(most_in) as most_in, any_value(most_out) as most_out,
        count_if(input_tokens = most_in) as at_in,
        count_if(input_tokens < most_in and input_tokens > 0.98 * most_in) as near_in,
        count_if(output_tokens = most_out) as at_out,
        count_if(output_tokens < most_out and output_tokens > 0.98 * most_out) as near_out
    from logged
    inner join limits using (file)
    group by file
),

clipped as (
    select file, 'clipped tokens' as aspect, at_in as rows, at_in / rows_kept as share,
        'input_tokens end in a spike at ' || most_in as detail, 'warn' as verdict
    from spikes
    inner join landed using (file)
    where at_in >= 20 and at_in > 5 * near_in and most_in >= 50
    union all
    select file, 'clipped tokens' as aspect, at_out as rows, at_out / rows_kept as share,
        'output_tokens end in a spike at ' || most_out as detail, 'warn' as verdict
    from spikes
    inner join landed using (file)
    where at_out >= 20 and at_out > 5 * near_out and most_out >= 50
),

tiers as (
    select file, 'tier' as aspect, count(*) as rows, rows / any_value(rows_kept) as share,
        tier_source || ', confidence ' || round(avg(tier_confidence), 2) as detail,
        if(tier_source in ('given', 'mapping'), 'ok', 'note') as verdict
    from kept
    inner join landed using (file)
    group by file, tier_source
),

renamed as (
    select file, 'llm' as aspect, count(*) as rows, rows / any_value(rows_kept) as share,
        source_llm || ' is mapped to ' || llm as detail, 'note' as verdict
    from kept
    inner join landed using (file)
    where source_llm <> llm
    group by file, source_llm, llm
),

optional as (
    select file, count(session_id) as session_id, count(cached_tokens) as cached_tokens,
        count(prefix_hashes) as prefix_hashes, count(source_ttft_s) as source_ttft_s,
        count(source_e2e_s) as source_e2e_s
    from kept
    group by file
),

present as (
    select file, 'also has' as aspect, rows, rows / rows_kept as share, detail, 'ok' as verdict
    from (unpivot optional on columns(* exclude (file)) into name detail value rows) as columns_there
    inner join landed using (file)
    where rows > 0
),

days as (
    select arrived_at::date as day, min(arrived_at) as first_at, max(arrived_at) as last_at
    from kept
    group by day
),

ends as (
    select
        min(first_at) as first_at,
        max(last_at) as last_at,
        date_diff('day', min(day), max(day)) + 1 - count(*) as missing
    from days
),

truncated as (
    select 'all' as file, 'truncated days' as aspect, null as rows, null as share,
        'the first day begins at ' || strftime(first_at, '%H:%M') || ', the last ends at '
        || strftime(last_at, '%H:%M') as detail,
        'note' as verdict
    from ends
    where hour(first_at) >= 1 or hour(last_at) < 23
    union all
    select 'all' as file, 'missing days' as aspect, null as rows, null as share,
        missing || ' days between the first and the last have no request: they count as 0 where no gap covers them'
        as detail, 'note' as verdict
    from ends
    where missing > 0
),

silent as (
    select 'all' as file, 'silences' as aspect, null as rows, null as share,
        count(*) || ' gaps of ' || 10 * sum(slots) || ' minutes where ' || round(sum(expected_requests))::bigint
        || ' requests were expected; the longest from '
        || strftime(arg_max(silence_start, slots), '%Y-%m-%d %H:%M') as detail,
        'warn' as verdict
    from silences
    where
        trace = $trace and silence_end is not null
        and silence_start >= (select min(first_at) from days) + interval '1 day'  -- the first day has no history
    having count(*) > 0
),

-- If the source's clock is coarse, gaps between arrivals and the peak of a second are artefacts of the clock.
instants as (
    select file, epoch_us(arrived_at) - first_us as since_us
    from logged
    inner join (select file, min(epoch_us(arrived_at)) as first_us from logged group by file) as firsts using (file)
),

whole_seconds as (  -- most clocks are finer, and their requests need no look at each grid
    select file
    from instants
    group by file
    having bool_and(since_us % 1000000 = 0)
),

gridded as (
    select file, 'arrival grid' as aspect, any_value(requests) as rows, 1.0 as share,
        'all arrivals lie on a grid of ' || max(seconds) || ' s: gaps between them mean nothing' as detail,
        'note' as verdict
    from (
        select file, seconds, count(*) as requests
        from instants
        semi join whole_seconds using (file)
        cross join (values (1), (2), (3), (4), (5), (6), (10), (12), (15), (20), (30), (60)) as grids (seconds)
        group by file, seconds
        having bool_and(since_us % (1000000 * seconds) = 0) and count(distinct since_us) >= 100
    ) as fitting
    group by file
),

shared as (
    select 'all' as file, 'reusable prompts' as aspect, null as rows, reuse_share as share,
        'of the blocks of prompts for ' || llm || ', also in an earlier one: [fleet] prefix = "blocks" reuses them'
        as detail, 'note' as verdict
    from prefix_reuse
    where trace = $trace and reuse_share > 0
    union all
    select file, 'reusable prompts' as aspect, count(cached_tokens) as rows,
        sum(cached_tokens) / sum(input_tokens) filter (cached_tokens is not null) as share,
        'of the prompt tokens were cached when the trace was recorded: [fleet] prefix = "given" reuses them' as detail,
        'note' as verdict
    from kept
    group by file
    having sum(cached_tokens) > 0
),

metered as (
    select file, aspect, rows, share, detail, verdict
    from metric_findings
    where trace = $trace
),

findings as (
    select * from metered
    union all by name select * from conserved
    union all by name select * from quarantined
    union all by name select * from clocks
    union all by name select * from steps
    union all by name select * from repeated
    union all by name select * from recoded
    union all by name select * from clipped
    union all by name select * from tiers
    union all by name select * from renamed
    union all by name select * from present
    union all by name select * from truncated
    union all by name select * from silent
    union all by name select * from gridded
    union all by name select * from shared
)

select file, aspect, rows::bigint as rows, share::double as share, detail, verdict
from findings
order by file, aspect, rows desc, detail
