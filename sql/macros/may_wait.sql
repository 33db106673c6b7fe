-- may_wait: whether the queue manager may defer the requests of a tier, by the tables tiers or outcomes; the other tiers are interactive.
-- units: true or false
-- Without a value (null in an older lake), the tier called niw is deferrable.
create or replace macro may_wait(is_held, tier) as
    coalesce(is_held, tier = 'niw');

-- whether no instance had taken it before an instant: held_s from its last arrival, earlier_s from its first arrival to the last
create or replace macro still_waits(arrived_at, earlier_s, held_s, until_at) as
    held_s is null or arrived_at + to_microseconds((1e6 * (earlier_s + held_s))::bigint) >= until_at;
