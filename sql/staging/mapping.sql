-- Macros for sql/sources: numbers and instants from text, names from the mapping file of the trace.
-- reads: none
-- csv_fields(line) = the fields of a line of CSV: a comma in quotes does not separate, a quote in quotes is
-- written twice (RFC 4180, section 2); a quote that does not end in the line is a character like any other
-- whole(value) = the whole number in the text, null if it is not one (12.7 is not rounded)
-- fields_by(line, separator) = the same with a separator that is not a comma
-- instant(value) = the UTC instant of a text; a text without a zone is of the mapping's clock, else UTC. Of an hour that a
-- clock shows twice, the later one (sql/staging/clock.sql corrects it)
-- microseconds(value, per_s) = a number of 1 / per_s seconds in microseconds
-- moment(value, name) = the instant of a text, by the patterns that were found for the column if it is not ISO 8601, or of a number in its unit, since 1970
-- or relative
-- duration(value, name) = seconds of a number in the unit that was found for the column
-- given_id(value) = an id of any kind as a number: a whole number from 0 as it is, anything else by its hash
-- kept_id(value) = the text of an id that given_id hashes, else null
-- at_epoch(seconds) = the instant this many seconds after 1970, null outside 1868 to 2071
-- at_start(seconds) = the instant this many seconds after the start that the mapping names, within a century
-- hashes(value) = a JSON list of whole numbers from 0 as block hashes, null if one of them is not; texts by their hash
-- named(name) = the catalogue's name for the source's name of a region or tier, by label_names of the mapping
-- otel_value(attributes, key) = the value of an attribute in a list of OTLP's key and value pairs
-- nth(dice, n) = dice of the n-th request of a row with several requests
-- fair(id) = dice of a request: its id if the format makes that from the row's dice, else a hash of the id,
-- because given ids may count up, be instants, or vary only in the upper bits
-- mapped(key, dice) = a name for region, llm, tier or app, chosen by its share with some bits of the row's dice
-- called(name, dice) = the catalogue's llm for a name of the source: the same name, else by [llm_names] of the
-- mapping, else by the mapping's shares with a hash of the name, so that one name is one llm
create or replace temp macro csv_fields(line) as
    if(
        contains(line, '"'),
        list_transform(
            regexp_extract_all(',' || line, ',((?:\s*"(?:[^"]|"")*")?[^,]*)', 1),
            lambda field: replace(field, '""', '"')
        ),
        string_split(line, ',')
    );

create or replace temp macro whole(value) as
    case when try_cast(value as double) = try_cast(value as bigint) then try_cast(value as bigint) end;

create or replace temp macro fields_by(line, separator) as
    if(
        contains(line, '"'),
        list_transform(
            regexp_extract_all(
                separator || line,
                '[' || separator || ']((?: *"(?:[^"]|"")*")?[^' || separator || ']*)', 1
            ),
            lambda field: replace(field, '""', '"')
        ),
        string_split(line, separator)
    );

create or replace temp macro instant(value) as
    case
        when getvariable('zone') is null or regexp_matches(value::varchar, ':\d\d.*([Zz]|[+-]\d\d(:?\d\d)?|UTC|GMT)\s*$')
            then coalesce(try_cast(value as timestamptz), try_strptime(value::varchar, '%d/%b/%Y:%H:%M:%S %z'))
        else timezone(getvariable('zone'), try_cast(value as timestamp))
    end;

create or replace temp macro microseconds(value, per_s) as
    case
        when per_s = 1000000000 and try_cast(value as double) = try_cast(value as bigint)
            then (try_cast(value as bigint) + 500) // 1000
        when abs(try_cast(value as double)) < 3.2e9 * per_s
            then round(try_cast(value as double) * (1000000 / per_s))::bigint
    end;

create or replace temp macro moment(value, name) as
    case
        when getvariable(name || '_patterns') is not null
            then timezone(
                coalesce(getvariable(name || '_zone'), getvariable('zone'), 'UTC'),
                try_strptime(trim(value::varchar), getvariable(name || '_patterns')::varchar[])
            )
        when getvariable(name || '_per_s') is null
            then instant(value)
        -- from the start at most 40 years: a larger number is a time since 1970, in a file whose first rows are none
        when abs(microseconds(value, getvariable(name || '_per_s'))) < if(getvariable(name || '_is_relative'), 1.262304e15, 4.2e15)
            then if(
                getvariable(name || '_is_relative'),
                getvariable('start') + to_microseconds(microseconds(value, getvariable(name || '_per_s'))),
                make_timestamptz(microseconds(value, getvariable(name || '_per_s')))
            )
    end;

create or replace temp macro duration(value, name) as
    try_cast(value as double) / coalesce(getvariable(name || '_per_s'), 1);

create or replace temp macro given_id(value) as
    case
        when typeof(value) in ('UBIGINT', 'BIGINT', 'INTEGER', 'UINTEGER', 'HUGEINT') or regexp_full_match(value::varchar, '\d{1,20}')
            then coalesce(try_cast(value as ubigint), md5_number_lower(value::varchar))
        else md5_number_lower(value::varchar)
    end;

create or replace temp macro kept_id(value) as
    if(value is null or value::varchar = given_id(value)::varchar, null, value::varchar);

create or replace temp macro at_epoch(seconds) as
    case
        when abs(try_cast(seconds as double)) < 3.2e9
            then make_timestamptz(round(1e6 * try_cast(seconds as double))::bigint)
    end;

create or replace temp macro at_start(seconds) as
    case
        when abs(try_cast(seconds as double)) < 3.2e9
            then getvariable('start') + to_microseconds(round(1e6 * try_cast(seconds as double))::bigint)
    end;

-- Via JSON, which DuckDB parses ten times as fast as a list in a text.
create or replace temp macro hashes(value) as
    case
        when len(try_cast(try_cast(value as json) as ubigint[]))
            = list_count(try_cast(try_cast(value as json) as ubigint[]))
            then try_cast(try_cast(value as json) as ubigint[])
        when json_type(try_cast(value as json), '$[0]') = 'VARCHAR'
            and len(try_cast(try_cast(value as json) as varchar[]))
            = list_count(try_cast(try_cast(value as json) as varchar[]))
            then list_transform(try_cast(try_cast(value as json) as varchar[]), lambda one: md5_number_lower(one))
    end;

create or replace temp macro nth(dice, n) as
    md5_number_lower(dice || ':' || n);

create or replace temp macro fair(id) as
    if(getvariable('has_given_ids'), md5_number_lower(id::varchar), id);

-- Each key uses its own 16 bits, so that region, llm, tier and app of a row are independent.
-- The dice is computed outside of the filter's lambda, which would compute it once per share.
create or replace temp macro mapped(key, dice) as
    list_extract(
        getvariable(key || '_names'),
        list_transform(
            [(dice // getvariable(key || '_slice') % 65536) / 65536.0],
            lambda place: 1 + len(list_filter(getvariable(key || '_below'), lambda share: share <= place))
        )[1]
    );

create or replace temp macro called(name, dice) as
    case
        when list_contains(getvariable('llms'), name)
            then name
        when list_contains(getvariable('llms_there'), name)
            then list_extract(getvariable('llms_here'), list_position(getvariable('llms_there'), name))
        else mapped('llm', coalesce(md5_number_lower(name), dice))
    end;

create or replace temp macro named(name) as
    case
        when list_contains(getvariable('names_there'), name)
            then list_extract(getvariable('names_here'), list_position(getvariable('names_there'), name))
        else name
    end;

create or replace temp macro otel_value(attributes, key) as
    json_extract_string(
        list_extract(list_filter(attributes, lambda entry: (entry ->> '$.key') = key), 1), '$.value.*'
    )[1];
