-- is_inside: whether a value lies in an interval, up to the order of sums (assets/advice/promise_sections.py has it for arrays, a test compares).
-- units: those of the value
create or replace macro is_inside(value, low, high) as
    value between low - 1e-6 * greatest(abs(low), abs(high), 1e-9) and high + 1e-6 * greatest(abs(low), abs(high), 1e-9);
