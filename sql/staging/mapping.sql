-- Macros for sql/sources: numbers and instants from text, names from the mapping file of the trace.
-- reads: none
-- csv_fields(line) = the fields of a line of CSV: a comma in quotes does not separate, a quote in quotes is
-- written twice (RFC 4180, section 2); a quote that does not end in the line is a character like any other
-- whole(value) = the whole number in the text, null if it is not one (12.7 is not rounded)
-- instant(value) = the UTC instant of a text; a text without a zone is UTC
-- at_epoch(seconds) = the instant this many seconds after 1970, null outside 1868 to 2071
-- at_start(seconds) = the instant this many seconds after the start that the mapping names, within a century
-- hashes(value) = a JSON list of whole numbers from 0 as block hashes; null if one of them is not
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

create or replace temp macro instant(value) as
    try_cast(value as timestamptz);

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
    end;

create or replace temp macro nth(dice, n) as
    md5_number_lower(dice || ':' || n);

create or replace temp macro fair(id) as
    if(getvariable('has_given_ids'), md5_number_lower(id::varchar), id);

-- Each key uses its own 16 bits, so that region, llm, tier and app of a row are independent.
create or replace temp macro mapped(key, dice) as
    list_extract(
        getvariable(key || '_names'),
        1 + len(list_filter(
            getvariable(key || '_below'),
            lambda share: share <= (dice // getvariable(key || '_slice') % 65536) / 65536.0
        ))
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
