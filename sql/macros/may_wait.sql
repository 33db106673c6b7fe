-- may_wait: whether the queue manager may hold the requests of a tier, as the table tiers or outcomes say it; the others are interactive.
-- units: true or false
-- Where they do not say (an older lake has null), those of the tier called niw are.
create or replace macro may_wait(is_held, tier) as
    coalesce(is_held, tier = 'niw');

-- whether nobody had taken it before an instant: held_s from its last arrival, earlier_s from its first to that one
create or replace macro still_waits(arrived_at, earlier_s, held_s, until_at) as
    held_s is null or arrived_at + to_microseconds((1e6 * (earlier_s + held_s))::bigint) >= until_at;
