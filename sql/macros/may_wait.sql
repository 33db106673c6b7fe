-- may_wait: whether the queue manager may hold the requests of a tier, as the table tiers or outcomes say it; the others are interactive.
-- units: true or false
-- Where they do not say (an older lake has null), those of the tier called niw are.
create or replace macro may_wait(is_held, tier) as
    coalesce(is_held, tier = 'niw');
