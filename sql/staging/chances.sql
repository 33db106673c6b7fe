-- Macros for sources with rates instead of requests: random numbers and gaps, all from the row's dice.
-- reads: none
-- chance(dice, n) = the n-th uniform number of a row, above 0 and below 1
-- weibull_gap(shape, dice, slot, n) = a Weibull gap of scale 1, by the inverse; shape 1 is exponential
-- uniform(number) = the lower 32 bits of a random number, as a number above 0 and below 1
-- gamma_candidate(shape, text) = a candidate by Marsaglia and Tsang (2000) from 96 bits of the text's hash, null if
-- rejected; computed from halves, because numbers of 128 bits divide slowly
-- gamma_gap(shape, dice, slot, n) = a Gamma gap of scale 1: the first of four candidates of shape + 1 that is
-- accepted (all four are rejected less than once in 100,000 times), times chance^(1 / shape); coalesce alone would
-- compute all four
create or replace temp macro chance(dice, n) as
    (md5_number_lower(dice || ':' || n) % 4294967296 + 0.5) / 4294967296;

create or replace temp macro weibull_gap(shape, dice, slot, n) as
    pow(-ln(chance(dice, slot || '/' || n)), 1 / shape);

create or replace temp macro uniform(number) as
    (number % 4294967296 + 0.5) / 4294967296;

create or replace temp macro gamma_candidate(shape, text) as (
    list_transform(
        [
            sqrt(-2 * ln(uniform(md5_number_upper(text))))
            * cos(2 * pi() * uniform(md5_number_upper(text) >> 32))
        ],
        lambda z: case
            when
                1 + z / sqrt(9 * shape - 3) > 0
                and ln(uniform(md5_number_lower(text))) < z * z / 2 + (shape - 1.0 / 3)
                * (1 - pow(1 + z / sqrt(9 * shape - 3), 3) + 3 * ln(1 + z / sqrt(9 * shape - 3)))
                then (shape - 1.0 / 3) * pow(1 + z / sqrt(9 * shape - 3), 3)
        end
    )[1]
);

create or replace temp macro gamma_gap(shape, dice, slot, n) as
    pow(chance(dice, slot || '/' || n), 1 / shape) * list_transform(
        [gamma_candidate(shape + 1, dice || 'a' || slot || '/' || n)],
        lambda first: case
            when first is not null then first
            else coalesce(
                gamma_candidate(shape + 1, dice || 'b' || slot || '/' || n),
                gamma_candidate(shape + 1, dice || 'c' || slot || '/' || n),
                gamma_candidate(shape + 1, dice || 'd' || slot || '/' || n),
                shape + 2.0 / 3
            )
        end
    )[1];
