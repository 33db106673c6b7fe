-- Macros for sql/sources: numbers from text, and what a format lacks from the mapping file beside the trace.
-- reads: none
-- whole(value) = the whole number that the text stands for, null where it is none (12.7 is not rounded)
-- mapped(key, dice) = a name for region, llm, tier or app, drawn by its share with a slice of the row's dice
create or replace temp macro whole(value) as
    case when try_cast(value as double) = try_cast(value as bigint) then try_cast(value as bigint) end;

-- Each key reads 16 bits of its own, so that region, llm, tier and app of a row are independent.
create or replace temp macro mapped(key, dice) as
    list_extract(
        getvariable(key || '_names'),
        1 + len(list_filter(
            getvariable(key || '_below'),
            lambda share: share <= (dice // getvariable(key || '_slice') % 65536) / 65536.0
        ))
    );
